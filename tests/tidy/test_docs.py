"""Pages that are made from the code say what the code says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

PAGES = {"protocol-support.md": "ottla.api.support_page", "configs.md": "ottla.api.config_page"}


@pytest.mark.parametrize(("page", "module"), PAGES.items())
def test_a_generated_page_is_that_of_its_table(page: str, module: str, tmp_path: Path) -> None:
    made, kept = tmp_path / page, ROOT / "docs" / page
    subprocess.run([sys.executable, "-m", module, str(made)], check=True)
    assert kept.exists(), "run: make docs"
    assert kept.read_text("utf-8") == made.read_text("utf-8"), "run: make docs"
