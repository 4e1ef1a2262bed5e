"""Pages that are made from the code say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.tidy.sources import ROOT

SUPPORT_PAGE = ROOT / "docs" / "protocol-support.md"
SUPPORT_MODULE = "ottla.api.support_page"


def test_the_protocol_support_page_is_that_of_the_table(tmp_path: Path) -> None:
    made = tmp_path / "protocol-support.md"
    subprocess.run([sys.executable, "-m", SUPPORT_MODULE, str(made)], check=True)
    assert SUPPORT_PAGE.exists(), "run: make docs"
    assert SUPPORT_PAGE.read_text("utf-8") == made.read_text("utf-8"), "run: make docs"
