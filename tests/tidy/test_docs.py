"""Pages that are made from the code say what the code says."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest

from tests.tidy.sources import ROOT

SUPPORT_PAGE = ROOT / "docs" / "protocol-support.md"
SUPPORT_MODULE = "ottla.api.support_page"


def test_the_protocol_support_page_is_that_of_the_table() -> None:
    if importlib.util.find_spec(SUPPORT_MODULE) is None:
        pytest.skip(f"{SUPPORT_MODULE} is not there, so there is no page to compare with")
    made = subprocess.run([sys.executable, "-m", SUPPORT_MODULE], cwd=ROOT, capture_output=True, text=True, check=True)
    assert SUPPORT_PAGE.read_text("utf-8") == made.stdout, (
        f"run: python -m {SUPPORT_MODULE} > {SUPPORT_PAGE.relative_to(ROOT)}"
    )
