"""A page cache that is full, as it is wherever a broker has run for a while.

Free memory is not like other memory. A virtual machine may give pages that are free back to its host, and then the
first process that writes to such a page pays for the host's work: a second and more of processor time for each GB, now
more, now less, which can be more than all that a broker does with the same bytes. A broker that has run for a day never
sees that: all memory is page cache, and a new page is an old one that nobody has asked for lately. So before a sample
free memory is filled with pages of a file that is nothing but a hole: they are clean, and whoever needs memory gets it
from them.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

FREE_BYTES_MAX = 256 << 20
"""Less than this is not worth filling; the system always keeps some."""
READ_BYTES = 128 << 10
READS_PER_LOOK = 256
FILE_BYTES = 1 << 42
"""More than a run reads: a page that is in the cache already takes no memory."""
SECONDS_MAX = 150.0


def free_bytes() -> int:
    """Memory that nobody uses, not even the page cache; 0 where the system does not say."""
    try:
        found = re.search(r"^MemFree:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


class PageCache:
    """The page cache of this machine, and the hole that fills it."""

    def __init__(self, directory: Path, free: Callable[[], int] = free_bytes) -> None:
        self._path = directory / "hole"
        self._free = free
        self._position = 0

    def fill(self) -> int:
        """Read as much as is free, until hardly anything is, or the time is up; returns how many bytes that took.

        Nothing happens where the system does not say what is free, or has no files with holes.
        """
        began, free = self._position, self._free()
        if free > FREE_BYTES_MAX:
            with contextlib.suppress(OSError):
                self._read_hole(began + free, time.monotonic() + SECONDS_MAX)
        return self._position - began

    def _read_hole(self, end: int, deadline: float) -> None:
        """Up to `end`: a system that keeps more free than others would have its pages replaced for ever."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT)
        buffer = bytearray(READ_BYTES)
        try:
            os.ftruncate(file, FILE_BYTES)
            while self._position < end and self._free() > FREE_BYTES_MAX and time.monotonic() < deadline:
                for _ in range(READS_PER_LOOK):
                    self._position += os.preadv(file, [buffer], self._position)
        finally:
            os.close(file)
