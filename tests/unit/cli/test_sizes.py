"""Sizes in the units that people write."""

from __future__ import annotations

import pytest

from ottla.cli.failures import UsageError
from ottla.cli.sizes import parse_size_bytes


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("0", 0), ("17", 17), ("500kB", 500_000), ("10 MB/s", 10_000_000), ("1.5GB", 1_500_000_000), ("64MiB", 64 << 20)],
)
def test_a_size_is_read(text: str, size_bytes: int) -> None:
    assert parse_size_bytes(text, "--throttle") == size_bytes


@pytest.mark.parametrize("text", ["", "-1", "MB", "10 parsecs", "1e9", "1.", "9" * 40])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--throttle"):
        parse_size_bytes(text, "--throttle")
