"""Loading committed offsets by the million: from the bytes of a record to its packed form, without a record between.

Theory of operation. A load hands over the last value of each key (`coordinator_loading`). The first offset of a group
and topic takes the ordinary way, through the shard, which makes the group and a place for its offsets. The others of
that group and topic are put into that place as they come: a lookup by the bytes of the key, one unpacking, one packing.
Whatever is not quite plain takes the ordinary way as well.

What an editor must keep true: a place is good only as long as nothing but plain offsets is replayed. `forget` is called
before anything else is: a tombstone may remove a place, a transaction may hold offsets that a later one supersedes.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import Final

from ottla.core.groups.committed_offset import pack_plain
from ottla.core.groups.records import OffsetRecord
from ottla.core.groups.shard import GroupShard
from ottla.model.ids import NO_PRODUCER_ID
from ottla.runtime.offset_codec import decode_offset, plain_value_with_id
from ottla.wire.record_pairs import Pair

PARTITION_BYTES: Final = 4
PLACES_MAX: Final = 100_000

_unpack_value = Struct(">2sqicq19s").unpack
"""As `plain_value_with_id`, with what is always the same in bytes, and the tagged id in one piece."""
_unpack_int32 = Struct(">i").unpack_from
_VERSION: Final = b"\x00\x04"
_EMPTY: Final = b"\x01"
_ID_TAG: Final = b"\x01\x00\x10"
"""In front of a topic's id."""


class OffsetLoading:
    """The quick way into one shard."""

    __slots__ = ("_numbers", "_places", "_shard", "_store")

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._store = shard.state.offsets
        self._places: dict[bytes, dict[int, bytes]] = {}
        """By the key of an offset without its partition."""
        self._numbers: dict[bytes, int] = {}
        """By the tagged id of a topic."""

    def forget(self) -> None:
        """Something else is replayed next."""
        self._places.clear()

    def replay(self, pairs: Iterable[Pair]) -> list[Pair]:
        """Replay offsets outside of any transaction, each key once; returns those that take the ordinary way."""
        places, numbers, rest, added = self._places, self._numbers, [], 0
        size = plain_value_with_id.size
        try:
            for pair in pairs:
                key, value = pair
                if key is None or value is None or len(value) != size:
                    rest.append(pair)
                    continue
                partitions = places.get(key[:-PARTITION_BYTES])
                if partitions is None:
                    if not self._replay_first(key, value):
                        rest.append(pair)
                    continue
                version, offset, epoch, no_metadata, timestamp, tagged_id = _unpack_value(value)
                number = numbers.get(tagged_id)
                if number is None or version != _VERSION or no_metadata != _EMPTY or offset < 0:
                    rest.append(pair)
                    continue
                (partition,) = _unpack_int32(key, len(key) - PARTITION_BYTES)
                if partition not in partitions:
                    added += 1
                partitions[partition] = pack_plain(offset, timestamp, epoch, number)
        finally:
            self._store.count += added
        return rest

    def _replay_first(self, key: bytes, value: bytes) -> bool:
        """Replay an offset through the shard and remember where the next ones go; False if it is left undone."""
        try:
            record = decode_offset(key, value)
        except (StructError, IndexError, UnicodeDecodeError):
            return False
        if record is None:
            return False
        self._shard.replay(record, NO_PRODUCER_ID)
        self._remember(key, value, record)
        return True

    def _remember(self, key: bytes, value: bytes, record: OffsetRecord) -> None:
        partitions = self._store.place(record.group_id, record.topic)
        if partitions is not None and len(self._places) < PLACES_MAX:
            self._places[key[:-PARTITION_BYTES]] = partitions
            tagged_id = _ID_TAG + record.topic_id.bytes
            if value.endswith(tagged_id):
                self._numbers[tagged_id] = self._store.packed.number_of(record.topic_id)
