"""Which partition a record goes to: the same one as with Kafka's Java clients."""

from __future__ import annotations

import random
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32 bit murmur2 hash that Kafka's Java clients use, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where a record with this key goes, as long as the topic has this many partitions."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitions:
    """Where records without a key go: one partition until its batch is full, then another one.

    Full batches compress better and cost the broker less than one record for each partition in turn.
    """

    __slots__ = ("_current", "_random")

    def __init__(self, seed: int | None = None) -> None:
        self._current: dict[str, int] = {}
        self._random = random.Random(seed)

    def current(self, topic: str, partition_count: int) -> int:
        """The partition that records without a key go to now."""
        chosen = self._current.get(topic)
        if chosen is None or chosen >= partition_count:
            chosen = self._current[topic] = self._random.randrange(partition_count)
        return chosen

    def batch_full(self, topic: str, partition: int, partition_count: int) -> None:
        """A batch is on its way: the next records go elsewhere, if there is an elsewhere."""
        if partition_count > 1 and self._current.get(topic) == partition:
            step = self._random.randrange(1, partition_count)
            self._current[topic] = (partition + step) % partition_count
