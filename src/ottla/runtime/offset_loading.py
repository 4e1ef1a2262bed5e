"""Loading committed offsets by the million: the value of a record is the packed form of its offset, as it is.

Theory of operation. The first offset of a group and topic takes the ordinary way, through the shard, which makes the
group and a place for its offsets. The others of that group and topic are put into that place as they come: a lookup by
the bytes of the key, and nothing is decoded, if the value is what a store keeps as the long form (`committed_offset`).
Records are looked at in pieces. Mostly all values of a piece are of that form and without metadata, which is seen of
all at once; if not, each is looked at alone. Offsets of another form, and tombstones, go through the shard one by one.

What an editor must keep true:
- A place is good as long as nothing but offsets outside of transactions is replayed, and those here. `forget` is called
  before anything else is: a group may be removed, which the next offset makes anew, and a transaction may hold offsets
  that a later one supersedes.
- A tombstone may remove a place. So after each record that went through the shard its place is asked for again.
- A place is remembered only while its group is there: a group may be gone and its offsets not, and a tombstone does not
  make it anew as the next offset must.
- What is not decoded here at once is left to the ordinary way, and so is a record on which the shard fails: it fails
  there again, and is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.core.groups.committed_offset import are_long, is_long
from ottla.core.groups.shard import GroupShard
from ottla.model.ids import NO_PRODUCER_ID
from ottla.runtime.offset_codec import decode_offset
from ottla.wire.record_entries import Entry, key_of

OFFSET_KEY: Final = b"\x00\x01"
"""How the keys of offsets begin: with their type."""
PLACES_MAX: Final = 100_000
PIECE_MAX: Final = 1024
ALIKE_MIN: Final = 8
"""Fewer records than this are not looked at all at once."""


class OffsetLoading:
    """The quick way into one shard."""

    __slots__ = ("_places", "_shard", "_store")

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._store = shard.state.offsets
        self._places: dict[bytes | None, dict[int, bytes]] = {}
        """By the key of an offset without its partition, which is at least the type and two lengths: no key that is in
        one piece is so long, so what is found has a partition."""

    def forget(self) -> None:
        """Something else is replayed next."""
        self._places.clear()

    def replay(self, entries: Sequence[Entry], start: int) -> int:
        """Replay offsets outside of any transaction from `start` on; returns where it came to one that it leaves."""
        for at in range(start, len(entries), PIECE_MAX):
            piece = entries[at : at + PIECE_MAX]
            left = self._replay_alike(piece) if _are_alike(piece) else self._replay_piece(piece)
            if left:
                return at + len(piece) - left
        return len(entries)

    def _replay_alike(self, entries: Sequence[Entry]) -> int:
        """Entries that could all be kept as they are. Returns how many are left, from one on that is left undone."""
        places, added, rest = self._places, 0, iter(entries)
        try:
            while True:
                try:
                    for names, partition, value in rest:
                        partitions = places[names]
                        if partition not in partitions:
                            added += 1
                        partitions[partition] = value  # type: ignore[index,assignment]
                    return 0
                except KeyError:
                    if not self._replay_one(names, partition, value):
                        return 1 + len(list(rest))
        finally:
            self._store.count += added

    def _replay_piece(self, entries: Sequence[Entry]) -> int:
        """The same where each has to be looked at."""
        places, rest = self._places, iter(entries)
        for names, partition, value in rest:
            if value is not None and is_long(value):
                partitions = places.get(names)
                if partitions is not None:
                    if partition not in partitions:
                        self._store.count += 1
                    partitions[partition] = value  # type: ignore[index]
                    continue
            if not self._replay_one(names, partition, value):
                return 1 + len(list(rest))
        return 0

    def _replay_one(self, names: bytes | None, partition: int | None, value: bytes | None) -> bool:
        """Replay an offset through the shard and remember where the next ones go; False if it is left undone."""
        key = key_of(names, partition)
        if key is None or not key.startswith(OFFSET_KEY):
            return False
        try:
            record = decode_offset(key, value)
            if record is None:
                return False
            self._shard.replay(record, NO_PRODUCER_ID)
        except Exception:
            return False
        partitions = self._store.place(record.group_id, record.topic)
        if partitions is None or record.group_id not in self._shard.state.groups:
            self._places.pop(names, None)
        elif names in self._places or len(self._places) < PLACES_MAX:
            self._places[names] = partitions
        return True


def _are_alike(entries: Sequence[Entry]) -> bool:
    """Whether each has for a value an offset in the long form without metadata."""
    if len(entries) < ALIKE_MIN:
        return False
    values = [value for _, _, value in entries if value is not None]
    return len(values) == len(entries) and are_long(values)
