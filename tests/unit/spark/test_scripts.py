"""A script is there, can be started, and is written again only when it changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ottla.spark.scripts import kept_script


def test_a_script_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "script"
    assert kept_script(path, "#!/bin/sh\necho one\n") == path
    made_at = path.stat().st_mtime_ns
    kept_script(path, "#!/bin/sh\necho one\n")
    assert path.stat().st_mtime_ns == made_at
    kept_script(path, "#!/bin/sh\necho two\n")
    assert subprocess.run([path], capture_output=True, text=True, check=True).stdout == "two\n"
    assert [each.name for each in path.parent.iterdir()] == ["script"]
