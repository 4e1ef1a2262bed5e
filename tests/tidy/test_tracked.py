"""What programs leave behind is not in the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_that_git_ignores_is_tracked() -> None:
    """A file that was added before its folder was ignored stays, and every run changes it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.splitlines() == []
