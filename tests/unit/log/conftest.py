"""What tests of the log share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ottla.log.disk import RealDisk


@pytest.fixture
def can_reserve(tmp_path: Path) -> None:
    """For tests that look for blocks behind the end of a file."""
    file = RealDisk().open(str(tmp_path / "probe"), create=True)
    file.reserve(0, 1 << 20)
    if os.fstat(file.fileno()).st_blocks == 0:
        pytest.skip("this file system cannot reserve")
