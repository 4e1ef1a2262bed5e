"""Sizes and rates as a command line spells them."""

from __future__ import annotations

import re
from typing import Final

from ottla.cli.failures import UsageError

_UNIT_BYTES: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_SIZE: Final = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))? ?([a-z]*)")


def parse_size_bytes(text: str, option: str) -> int:
    """`500kB`, `10MB`, `1.5GB`, `64MiB`, or a plain number of bytes; with or without `/s` behind it."""
    found = _SIZE.fullmatch(text.strip().lower().removesuffix("/s"))
    if not found or found[3] not in _UNIT_BYTES:
        raise UsageError(f"{option} {text!r}: write a size such as 500kB, 10MB or 1.5GB")
    whole, fraction, unit = found.groups()
    unit_bytes = _UNIT_BYTES[unit]
    return int(whole) * unit_bytes + int((fraction or "").ljust(6, "0")) * unit_bytes // 10**6
