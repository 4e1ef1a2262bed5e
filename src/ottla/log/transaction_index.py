"""The aborted transactions of a segment: `<base offset>.txnindex`, in Kafka's format.

    version i16 | producer id i64 | first offset i64 | last offset i64 | last stable offset i64

Theory of operation. A transaction that was aborted has an entry in the index of the segment that holds its marker; the
last offset is the marker's, and the last stable offset is where the first transaction that was still open then begins,
or the offset after the marker. Markers come in the order of their offsets, and the last stable offset never goes back,
so both rise from entry to entry: a lookup is two bisections and one read. Most segments never have an abort marker, and
then there is no file and no object.

Crashes. An entry is written before its marker is (`PartitionLog` takes it back if the marker cannot be written), and
is synced with the segment's batches, so below the recovery point the index is complete. From there on recovery makes it
anew from the markers, and throws away an entry whose marker never came. `load` believes nothing that the rules above
rule out; what it refuses is made anew from the batches (`recovery`).

What an editor must keep true: what lies in the file beyond `count` entries is gone before the next clean stop, since
`load` takes the file as it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.log.handles import FileHandle
from ottla.log.index import CorruptIndexError

if TYPE_CHECKING:
    from ottla.log.segment import Segment

VERSION: Final = 0
ENTRY: Final = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """A transaction whose records nobody may see."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's own."""
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment."""

    __slots__ = ("count", "handle", "last_offset")

    def __init__(self, handle: FileHandle) -> None:
        self.handle = handle
        self.count = -1
        """-1 before `load` or `create`."""
        self.last_offset = -1
        """Of the last entry, the largest there is."""

    @property
    def is_loaded(self) -> bool:
        return self.count >= 0

    def create(self) -> None:
        """An empty file, replacing what is there."""
        self.handle.create()
        self.count, self.last_offset = 0, -1

    def load(self, base_offset: int) -> None:
        """Take the file as it is; CorruptIndexError if it cannot be the index of a segment that begins there."""
        file = self.handle.get()
        data = file.pread(file.size(), 0)
        entries = _decode(self.handle.path, data)
        before = AbortedTransaction(-1, -1, base_offset - 1, -1)
        for entry in entries:
            _check_follows(self.handle.path, entry, before)
            before = entry
        self.count = len(entries)
        self.last_offset = before.last_offset if entries else -1

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry; not synced. After an OSError the file may hold a part of it, see `cut_back`."""
        self.handle.get().pwrite(ENTRY.pack(VERSION, *transaction), self.count * ENTRY.size)
        self.count += 1
        self.last_offset = transaction.last_offset

    def truncate_to(self, offset: int) -> None:
        """Forget the transactions whose markers are at `offset` or beyond."""
        if self.last_offset >= offset:
            self.count = self._first_from(offset)
            self.cut_back()
            self.last_offset = self._entry(self.count - 1).last_offset if self.count else -1

    def cut_back(self) -> None:
        """Take away what the file holds beyond `count`."""
        self.handle.get().truncate(self.count * ENTRY.size)

    def entries(self) -> list[AbortedTransaction]:
        return self._read(0, self.count)

    def overlapping(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """The transactions that reach into a range, and whether no later segment can have more of them."""
        start = self._first_from(fetch_offset) if self.last_offset >= fetch_offset else self.count
        end = bisect_left(
            range(self.count), upper_bound_offset, lo=start, key=lambda number: self._entry(number).last_stable_offset
        )
        found = self._read(start, min(end + 1, self.count))
        return [entry for entry in found if entry.first_offset < upper_bound_offset], end < self.count

    def sync(self) -> None:
        """Bring the entries to the medium. Blocks; any thread."""
        self.handle.get().sync()

    def _first_from(self, offset: int) -> int:
        """The number of the first entry whose marker is at `offset` or beyond."""
        return bisect_left(range(self.count), offset, key=lambda number: self._entry(number).last_offset)

    def _entry(self, number: int) -> AbortedTransaction:
        return self._read(number, number + 1)[0]

    def _read(self, start: int, end: int) -> list[AbortedTransaction]:
        if start >= end:
            return []
        data = self.handle.get().pread((end - start) * ENTRY.size, start * ENTRY.size)
        return [AbortedTransaction(*fields) for _, *fields in ENTRY.iter_unpack(data)]


def encode(transactions: Iterable[AbortedTransaction]) -> bytes:
    """A whole index file."""
    return b"".join(ENTRY.pack(VERSION, *transaction) for transaction in transactions)


def aborted_transactions(
    segments: Sequence[Segment], fetch_offset: int, upper_bound_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions that reach into a range; `segments` begin with the one that holds `fetch_offset`.

    A marker may be many segments after the range, so the search goes on until an entry says that everything below the
    range's end was stable then.
    """
    found: list[AbortedTransaction] = []
    for segment in segments:
        if segment.transactions is not None:
            overlapping, is_complete = segment.transactions.overlapping(fetch_offset, upper_bound_offset)
            found += overlapping
            if is_complete:
                break
    return found


def _decode(path: str, data: bytes) -> list[AbortedTransaction]:
    if len(data) % ENTRY.size:
        raise CorruptIndexError(f"{path} has {len(data)} bytes, no multiple of {ENTRY.size}")
    entries = []
    for version, *fields in ENTRY.iter_unpack(data):
        if version != VERSION:
            raise CorruptIndexError(f"{path} has an entry of version {version}, known is {VERSION}")
        entries.append(AbortedTransaction(*fields))
    return entries


def _check_follows(path: str, entry: AbortedTransaction, before: AbortedTransaction) -> None:
    if (
        entry.producer_id < 0
        or not 0 <= entry.first_offset < entry.last_offset
        or entry.last_offset <= before.last_offset
        or not before.last_stable_offset <= entry.last_stable_offset <= entry.last_offset + 1
    ):
        raise CorruptIndexError(f"{path} has an entry that cannot be right: {entry}")
