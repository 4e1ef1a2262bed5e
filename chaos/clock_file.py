"""A file that says by how many milliseconds a broker's wall clock is off; the broker maps it into its memory."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

SHIFT: Final = struct.Struct("<q")


def set_clock(path: Path, shift_ms: int) -> None:
    """Before a broker starts with this file, or while it runs."""
    if not path.exists():
        path.write_bytes(SHIFT.pack(shift_ms))
        return
    with path.open("r+b") as file:
        file.write(SHIFT.pack(shift_ms))
