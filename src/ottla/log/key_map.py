"""The latest offset of each key, within a bound of memory. For the record worker only: it imports compiled code.

The bound covers what the map really uses: entries and keys are allocated at their largest size, but memory that was
never written to costs nothing. Slots double as entries come, so a small log has a small map.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from ottla.wire.compiled.keys import Probe, fill_slots, find_latest, put_latest

ENTRY_BYTES: Final = 16
SLOT_BYTES: Final = 8
SLOTS_MIN: Final = 1 << 12
ENTRIES_MAX: Final = (1 << 32) - 2
"""A slot has 32 bits for an entry's number."""
_LOAD_MAX: Final = 0.65

Columns = npt.NDArray[np.int64]


class KeyMap:
    """Exact: two keys are the same only if all their bytes are."""

    __slots__ = ("_arena", "_entries", "_seed", "_slots", "bytes_max", "count")

    def __init__(self, bytes_max: int, seed: int) -> None:
        self.bytes_max = bytes_max
        self.count = 0
        self._seed = seed & 0xFFFF_FFFF_FFFF_FFFF
        self._slots = np.zeros(SLOTS_MIN, np.uint64)
        self._allocate(bytes_max // ENTRY_BYTES + 2, bytes_max)

    def _allocate(self, entries: int, key_bytes: int) -> None:
        self._entries = np.empty(2 * entries, np.int64)
        self._entries[0] = 0
        self._arena = np.empty(key_bytes + 1, np.uint8)

    @property
    def key_bytes(self) -> int:
        return int(self._entries[2 * self.count])

    @property
    def bytes_used(self) -> int:
        return SLOT_BYTES * len(self._slots) + ENTRY_BYTES * (self.count + 1) + self.key_bytes

    def make_room(self, records: int, key_bytes: int, *, if_empty: bool = False) -> bool:
        """Make sure that as many records with as many bytes of keys can be put; False if that passes the bound.

        With `if_empty` an empty map takes whatever comes, or a log with one huge batch would never be cleaned.
        """
        entries = self.count + records
        slots = self._slots_for(entries)
        wanted = SLOT_BYTES * slots + ENTRY_BYTES * (entries + 1) + self.key_bytes + key_bytes
        if wanted > self.bytes_max or entries > ENTRIES_MAX:
            if self.count or not if_empty:
                return False
            self._allocate(entries + 2, key_bytes)
        if slots > len(self._slots):
            self._slots = np.zeros(slots, np.uint64)
            fill_slots(self._slots, self._entries, self._arena, self.count, self._seed)
        return True

    def put(self, probes: Columns, first: int, last: int) -> None:
        """Enter records; room has been made for them."""
        self.count = put_latest(self._slots, self._entries, self._arena, self.count, probes, first, last)

    def find(self, probes: Columns, rows: int, found: npt.NDArray[np.int64]) -> None:
        """The latest offset of each record's key, -1 where the map has none."""
        find_latest(self._slots, self._entries, self._arena, probes, 0, rows, found)

    def _slots_for(self, entries: int) -> int:
        slots = len(self._slots)
        while entries > _LOAD_MAX * slots:
            slots *= 2
        return slots


def key_bytes_of(probes: Columns, first: int, last: int) -> int:
    """How many bytes the keys of these records have."""
    return int(np.maximum(probes[Probe.KEY_LENGTH, first:last], 0).sum())
