"""The sparse indexes of a segment, in Kafka's format.

Theory of operation. An index is a file of fixed entries with rising keys: an `OffsetIndex` maps the last offset of a
batch to the batch's position, a `TimeIndex` maps the largest timestamp so far to the last offset of the batch that
has it. Both keep offsets relative to the segment. An entry is made once in `index.interval.bytes`, so a lookup finds
a place at or before the batch that is wanted, and the rest is a short walk over headers.

Of a time index nothing is kept in memory but its last entry and the few entries that have not been written yet. A
lookup reads the file, which the system has in its page cache; ten reads of a few bytes find one entry in a quarter of
a million. An offset index is asked for every fetch that is not at the tail, so the ones asked of late are kept in
memory as two arrays of four bytes an entry, up to a bound over all of them (`_Kept`).

Crashes. The index of the last segment is made anew after an unclean stop, so new entries may wait in memory. A sealed
segment's index is written when it is sealed and synced before the recovery point passes it.

Threads. One thread appends, any thread may look up. `_state` is replaced as a whole, and what it counts as stored is in
the file before it is counted.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from contextlib import suppress
from operator import lt
from struct import Struct
from typing import ClassVar, Final

from ottla.log.handles import FileHandle
from ottla.model.errors import OttlaError

PENDING_BYTES_MAX: Final = 1024
BLOCK_ENTRIES: Final = 256
KEPT_ENTRIES_MAX: Final = 2_000_000
"""Entries of offset indexes in memory: 16 MB, enough for 8 GB of segments that are being read."""


class CorruptIndexError(OttlaError):
    """An index that cannot be right. It is made anew from its segment."""


class SparseIndex:
    """Rising keys with a value each, appended at the end."""

    __slots__ = ("_pending_bytes_max", "_state", "handle", "last_key", "last_value")

    ENTRY: ClassVar[Struct]

    def __init__(self, handle: FileHandle) -> None:
        self.handle = handle
        self._pending_bytes_max = PENDING_BYTES_MAX
        self._state: tuple[int, bytearray] = (0, bytearray())
        """How many entries the file holds, and the bytes of those that follow."""
        self.last_key = -1
        self.last_value = 0

    @property
    def count(self) -> int:
        stored, pending = self._state
        return stored + len(pending) // self.ENTRY.size

    def load(self) -> None:
        """Take the file as it is; raises CorruptIndexError if its size or its last entry cannot be right."""
        file = self.handle.get()
        size = file.size()
        if size % self.ENTRY.size:
            raise CorruptIndexError(f"{self.handle.path} has {size} bytes, no multiple of {self.ENTRY.size}")
        self._state = (size // self.ENTRY.size, bytearray())
        self._read_last()
        if size and not self._ends_rightly(self.ENTRY.unpack(file.pread(self.ENTRY.size, 0))[0]):
            raise CorruptIndexError(f"{self.handle.path} ends with {self.last_key} -> {self.last_value}")

    def create(self) -> None:
        """An empty file, replacing what is there."""
        self.handle.create()
        self._state = (0, bytearray())
        self._read_last()

    def append(self, key: int, value: int) -> None:
        """Add an entry whose key is larger than all others. Does not fail: what cannot be written waits in memory."""
        pending = self._state[1]
        pending += self.ENTRY.pack(key, value)
        self.last_key = key
        self.last_value = value
        if len(pending) >= self._pending_bytes_max:
            self.try_to_write()

    def try_to_write(self) -> None:
        """The batches are in the log already. Whoever seals the segment will hear of it if this keeps failing."""
        with suppress(OSError):
            self.write_pending()

    def keep_in_memory(self) -> None:
        """Never write: for an index that stands in for a file that cannot be used."""
        self._pending_bytes_max = sys.maxsize

    @property
    def is_in_memory(self) -> bool:
        return self._pending_bytes_max == sys.maxsize

    def write_pending(self) -> None:
        """Put into the file what is only in memory; not synced. After an OSError it is still in memory."""
        stored, pending = self._state
        if pending and not self.is_in_memory:
            self.handle.get().pwrite(pending, stored * self.ENTRY.size)
            self._state = (stored + len(pending) // self.ENTRY.size, bytearray())

    def floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose key is at most `key`. Any thread."""
        stored, pending = self._state
        entry = self._floor_in(bytes(pending), key)
        return entry if entry is not None else self._floor_in_file(stored, key)

    def truncate_below(self, key: int) -> None:
        """Drop every entry whose key is `key` or larger."""
        self.write_pending()
        stored, _ = self._state
        self.truncate_entries(self._count_below(key, stored))

    def truncate_entries(self, count: int) -> None:
        self.write_pending()
        self.handle.get().truncate(count * self.ENTRY.size)
        self._state = (count, bytearray())
        self._read_last()

    def entries(self) -> list[tuple[int, int]]:
        """All of it, for checks and tests."""
        stored, pending = self._state
        data = self.handle.get().pread(stored * self.ENTRY.size, 0) + bytes(pending)
        return list(self.ENTRY.iter_unpack(data))

    def check_rising(self) -> None:
        """Read all of it and raise CorruptIndexError unless keys rise: what a torn or lost write leaves does not."""
        keys = [key for key, _ in self.entries()]
        if not all(map(lt, keys, keys[1:])):
            raise CorruptIndexError(f"{self.handle.path} has keys that do not rise")

    def _floor_in(self, block: bytes, key: int) -> tuple[int, int] | None:
        unpack, size = self.ENTRY.unpack_from, self.ENTRY.size
        found = bisect_right(range(len(block) // size), key, key=lambda entry: unpack(block, entry * size)[0])
        if not found:
            return None
        entry: tuple[int, int] = unpack(block, (found - 1) * size)
        return entry

    def _floor_in_file(self, stored: int, key: int) -> tuple[int, int] | None:
        if not stored:
            return None
        file, unpack, size = self.handle.get(), self.ENTRY.unpack, self.ENTRY.size
        low, high = 0, stored
        while high - low > BLOCK_ENTRIES:
            middle = (low + high) // 2
            if unpack(file.pread(size, middle * size))[0] <= key:
                low = middle
            else:
                high = middle
        return self._floor_in(file.pread((high - low) * size, low * size), key)

    def _count_below(self, key: int, stored: int) -> int:
        file, unpack, size = self.handle.get(), self.ENTRY.unpack, self.ENTRY.size
        return bisect_right(range(stored), key - 1, key=lambda entry: unpack(file.pread(size, entry * size))[0])

    def _read_last(self) -> None:
        count, _ = self._state
        self.last_key, self.last_value = -1, 0
        if count:
            size = self.ENTRY.size
            self.last_key, self.last_value = self.ENTRY.unpack(self.handle.get().pread(size, (count - 1) * size))

    def _ends_rightly(self, first_key: int) -> bool:
        return self.last_key >= 0 and (self.count == 1 or self.last_key > first_key)


class _Kept:
    """The offset indexes that are in memory, the one asked for longest ago first, with their entries."""

    __slots__ = ("_entries", "_indexes")

    def __init__(self) -> None:
        self._indexes: OrderedDict[OffsetIndex, int] = OrderedDict()
        self._entries = 0

    def keep(self, index: OffsetIndex) -> None:
        """Count an index in, and drop others while there is too much."""
        entries = index.kept_entries
        self._entries += entries - self._indexes.get(index, 0)
        self._indexes[index] = entries
        self._indexes.move_to_end(index)
        while self._entries > KEPT_ENTRIES_MAX and len(self._indexes) > 1:
            oldest, dropped = self._indexes.popitem(last=False)
            self._entries -= dropped
            oldest.drop_kept()

    def forget(self, index: OffsetIndex) -> None:
        self._entries -= self._indexes.pop(index, 0)


_kept: Final = _Kept()


class OffsetIndex(SparseIndex):
    """Last offset of a batch (relative to the segment) -> its position in the segment's file."""

    __slots__ = ("_arrays",)

    ENTRY = Struct(">ii")

    def __init__(self, handle: FileHandle) -> None:
        super().__init__(handle)
        self._arrays: tuple[array[int], array[int]] | None = None

    @property
    def kept_entries(self) -> int:
        return 0 if self._arrays is None else len(self._arrays[0])

    def drop_kept(self) -> None:
        self._arrays = None

    def floor(self, key: int) -> tuple[int, int] | None:
        arrays = self._arrays
        if arrays is None or len(arrays[0]) != self.count:
            arrays = self._load_arrays()
        found = bisect_right(arrays[0], key)
        return (arrays[0][found - 1], arrays[1][found - 1]) if found else None

    def first_from(self, position: int) -> int | None:
        """The key of the first entry that points at `position` or beyond it; None if there is none."""
        arrays = self._arrays
        if arrays is None or len(arrays[0]) != self.count:
            arrays = self._load_arrays()
        found = bisect_left(arrays[1], position)
        return arrays[0][found] if found < len(arrays[0]) else None

    def truncate_entries(self, count: int) -> None:
        super().truncate_entries(count)
        self._forget()

    def create(self) -> None:
        super().create()
        self._forget()

    def load(self) -> None:
        self._forget()
        super().load()

    def _forget(self) -> None:
        self._arrays = None
        _kept.forget(self)

    def _load_arrays(self) -> tuple[array[int], array[int]]:
        """All entries as they are now. What an earlier call has read is not read again, so appends cost little."""
        stored, pending = self._state
        known = self._arrays or (array("i"), array("i"))
        have, size = len(known[0]), self.ENTRY.size
        more = self.handle.get().pread((stored - have) * size, have * size) if have < stored else b""
        more += bytes(pending[max(have - stored, 0) * size :])
        entries = array("i", more[: len(more) // size * size])
        if sys.byteorder == "little":
            entries.byteswap()
        # New arrays: another thread may be looking into the old ones.
        arrays = (known[0] + entries[0::2], known[1] + entries[1::2])
        self._arrays = arrays
        _kept.keep(self)
        return arrays

    def _ends_rightly(self, first_key: int) -> bool:
        # The batch at the beginning of a segment has no entry. Zeros at the end are what Kafka preallocates.
        return self.last_value > 0 and super()._ends_rightly(first_key)


class TimeIndex(SparseIndex):
    """Largest timestamp so far -> last offset (relative) of the first batch that has it."""

    __slots__ = ()

    ENTRY = Struct(">qi")

    def append_if_later(self, timestamp: int, offset: int) -> None:
        """Add an entry if the timestamp is larger than the last; Kafka's index has no entry for "no timestamp"."""
        if timestamp > self.last_key:
            self.append(timestamp, offset)
