"""Room behind the end of a log that is written to a lot: zeros, which the next batches overwrite.

Theory of operation. A file that grows by some kilobytes at a time gets its memory in the page cache in small pieces,
and its blocks one by one; on Linux that costs twice as much as the copying does. A write that ends a little later is
hardly dearer, and gets all of it at once. So a write that needs more of the file also writes zeros up to the next
multiple of `Disk.fill_bytes`, and those that follow find their memory and their blocks there. A log that has become
long gets its blocks for more than that, a sixteenth of its length at a time, with no zeros in them and without a change
of its length.

Room is for logs that grow. One that rests for a moment gives it back (`Rooms.give_back`), so that its file ends with
its last batch for whoever else looks at it.

What an editor must keep true: a log ends where `Segment.size` says, not where its file does. Zeros are no batch, so
whoever recovers a log after a crash cuts them off; whoever seals or closes one cuts them off before (`Segment.seal`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from ottla.log.disk import Bytes, File
from ottla.log.failures import is_out_of_space

FILLED_STEPS_MIN: Final = 16
"""A log gets room when it has so many times as much in it: what lies idle at its end stays a small part of it."""
RESERVED_FILLS: Final = 32
"""Blocks are taken for so many steps at least: 1 MB."""
RESERVED_FILLS_MAX: Final = 512
"""And for so many at most: 16 MB."""
NEVER: Final = sys.maxsize
_ZEROS: Final = memoryview(bytes(32 << 10))
"""All the room that a write can get."""


class Roomy(Protocol):
    """A log's file that may have room."""

    @property
    def size(self) -> int: ...

    @property
    def has_room(self) -> bool: ...

    def give_back_room(self) -> None: ...


class Rooms:
    """Where there is room, of all logs that share their open files. Belongs to the loop."""

    __slots__ = ("_sizes",)

    def __init__(self) -> None:
        self._sizes: dict[Roomy, int] = {}
        """How long each was when somebody last looked."""

    def __len__(self) -> int:
        return len(self._sizes)

    def note(self, roomy: Roomy) -> None:
        self._sizes.setdefault(roomy, -1)

    def give_back(self) -> None:
        """Cut off the room of those that have not grown since the last call."""
        for roomy, size in list(self._sizes.items()):
            if roomy.has_room and roomy.size != size:
                self._sizes[roomy] = roomy.size
                continue
            del self._sizes[roomy]
            if roomy.has_room:
                with suppress(OSError):  # If its disk has failed, others will say so.
                    roomy.give_back_room()


def fill_from(size: int, fill_bytes: int) -> int:
    """Where a write to a log of `size` bytes must end to get room behind it."""
    return max(size, FILLED_STEPS_MIN * fill_bytes) if fill_bytes else NEVER


def reserve_from(fill_bytes: int) -> int:
    """How long a log must be to get blocks ahead."""
    return FILLED_STEPS_MIN * RESERVED_FILLS * fill_bytes if fill_bytes else NEVER


def reserved_step(size: int, fill_bytes: int) -> int:
    """For how much at a time a log of `size` bytes gets blocks, if it gets any."""
    fills = size // (FILLED_STEPS_MIN * fill_bytes)
    return min(fill_bytes << fills.bit_length() - 1, RESERVED_FILLS_MAX * fill_bytes)


def write_with_room(file: File, pieces: Sequence[Bytes], position: int, end: int, fill_bytes: int) -> int:
    """Write `pieces`, which end at `end`, and room behind them; returns where the file ends. OSError as of a write.

    Who writes much at a time needs no zeros.
    """
    if position >= reserve_from(fill_bytes):
        step = reserved_step(position, fill_bytes)
        if position // step != end // step:
            with suppress(OSError):  # Whether there is space the write will tell.
                file.reserve(position, (end // step + 1) * step)
    zeros = _ZEROS[: -end % fill_bytes] if end - position < fill_bytes else _ZEROS[:0]
    try:
        file.pwritev([*pieces, zeros], position)
        return end + len(zeros)
    except OSError as error:
        if not zeros or not is_out_of_space(error):
            raise
    # Some of the zeros may be there; the batches may still fit.
    file.pwritev(pieces, position)
    file.truncate(end)
    return end
