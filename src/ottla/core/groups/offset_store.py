"""The committed offsets of a shard's groups, and those that wait for the end of a transaction.

Theory of operation. Committed offsets are a tree of dicts, group to topic to partition, with packed leaves (see
`committed_offset`). An offset that belongs to a transaction is held under its producer id until the marker comes; then
all that the producer wrote here becomes visible, or none of it.

What an editor must keep true:
- Only what replays changes anything.
- A committed offset never goes back unasked: what a transaction holds takes effect only if nothing was written later
  and took effect before it. Held offsets are numbered as they come. Whatever takes effect marks the older ones that
  are held for the same partition as superseded; they still wait for their marker, and do nothing then.
- A tombstone forgets the committed offset, and the held ones with it.
- No dict of the trees is left empty, so that a group without offsets is not in them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterator, Mapping
from sys import intern
from types import MappingProxyType
from typing import Final, TypeAlias
from uuid import UUID

from ottla.core.groups.committed_offset import CommittedOffset, PackedOffsets
from ottla.core.groups.records import GroupRecord, OffsetRecord
from ottla.model.ids import NO_OFFSET, ZERO_UUID

Place: TypeAlias = tuple[str, str, int]
"""Group, topic, partition."""

Sweep: TypeAlias = Iterator[tuple[int, list[GroupRecord]]]
"""Steps of some work: how many things each looked at, and what it wants written. See `offset_sweeps`."""

SUPERSEDED: Final = None
FORGET: Final = b""
"""Held in place of an offset where a transaction commits -1: there shall be none."""

NO_TOPICS: Final[Mapping[str, Mapping[int, bytes]]] = MappingProxyType({})
NO_PARTITIONS: Final[Mapping[str, Container[int]]] = MappingProxyType({})


class OffsetStore:
    """What `OffsetRecord`s come to. Leaves of `topics` are read with `packed`."""

    __slots__ = ("_groups", "_held", "_number", "_open", "_pack", "count", "forgetting", "packed", "sweeps")

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, dict[int, bytes]]] = {}
        self._held: dict[int, dict[Place, tuple[int, bytes | None]]] = {}
        """By producer id: the number of the record, and the offset."""
        self._open: dict[str, dict[str, dict[int, set[int]]]] = {}
        """The producers that hold an offset of a partition."""
        self._number = 0
        self.packed = PackedOffsets()
        self._pack = self.packed.pack
        self.count = 0
        """How many offsets are committed."""
        self.sweeps: deque[Sweep] = deque()
        """Work on very many offsets that is under way; in no record, and lost with the shard."""
        self.forgetting: dict[str, list[UUID]] = {}
        """The ids of deleted topics that a sweep is still to be through with, by their names."""

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        packed = self.topics(group_id).get(topic, {}).get(partition)
        return None if packed is None else self.packed.unpack(packed)

    def topics(self, group_id: str) -> Mapping[str, Mapping[int, bytes]]:
        """The packed offsets of a group by topic and partition, as they are: not for keeping."""
        return self._groups.get(group_id, NO_TOPICS)

    def unstable(self, group_id: str) -> Mapping[str, Container[int]]:
        """The partitions of a group that an open transaction has written an offset for."""
        return self._open.get(group_id, NO_PARTITIONS)

    @property
    def unstable_groups(self) -> Collection[str]:
        """The groups that have such partitions; the same object at all times."""
        return self._open

    def has_any(self, group_id: str) -> bool:
        """Whether the group has an offset, or may have one when a transaction ends."""
        return group_id in self._groups or group_id in self._open

    def has_topic(self, group_id: str, topic: str) -> bool:
        """The same of one topic."""
        return topic in self.topics(group_id) or topic in self.unstable(group_id)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """The same of one partition."""
        return partition in self.topics(group_id).get(topic, ()) or partition in self.unstable(group_id).get(topic, ())

    def partitions(self, group_id: str, topic: str) -> list[int]:
        """The partitions of a topic that the group has an offset of, or may have one when a transaction ends."""
        held = self._open.get(group_id, {}).get(topic, {})
        return list(dict.fromkeys((*self.topics(group_id).get(topic, ()), *held)))

    def topic_ids(self, group_id: str, topic: str, partition: int) -> Iterator[UUID]:
        """The id that the topic had when the offset was committed; without one, those of what transactions hold."""
        committed = self.topics(group_id).get(topic, {}).get(partition)
        if committed is not None:
            yield self.packed.topic_id(committed)
            return
        for producer_id in self._open.get(group_id, {}).get(topic, {}).get(partition, ()):
            _, packed = self._held[producer_id][group_id, topic, partition]
            yield self.packed.topic_id(packed) if packed else ZERO_UUID

    def forgotten(self, topic: str, topic_id: UUID) -> None:
        """A sweep is through with a deleted topic."""
        ids = self.forgetting[topic]
        ids.remove(topic_id)
        if not ids:
            del self.forgetting[topic]

    def place(self, group_id: str, topic: str) -> dict[int, bytes] | None:
        """Where the packed offsets of a group and topic are, for those who put them there by themselves and count them.

        Good while no transaction holds offsets of the two, and as long as there is an offset in it: an empty one is
        thrown away. None where there are none yet, and while a transaction holds some.
        """
        if topic in self.unstable(group_id):
            return None
        return self._groups.get(group_id, {}).get(topic)

    def replay(self, record: OffsetRecord, producer_id: int) -> None:
        """A record is in the log, outside of any transaction (-1) or in one of this producer."""
        group_id, topic, partition, offset, _, _, _, _, _ = record
        if producer_id >= 0:
            self._hold(record, producer_id)
        elif offset == NO_OFFSET:
            self._remove(group_id, topic, partition)
            self._let_go(group_id, topic, partition)
        else:
            packed = self._pack(record)
            try:  # As `_put` does: this is what loading a shard consists of.
                if partition not in (partitions := self._groups[group_id][topic]):
                    self.count += 1
                partitions[partition] = packed
            except KeyError:
                self._put(group_id, topic, partition, packed)
            if self._open:
                self._supersede(group_id, topic, partition, self._number + 1)

    def replay_packed(self, group_id: str, topic: str, partition: int, packed: bytes) -> None:
        """As `replay` of an offset outside of any transaction that somebody has packed already."""
        self._put(group_id, topic, partition, packed)
        if self._open:
            self._supersede(group_id, topic, partition, self._number + 1)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction of this producer has ended. Without anything held it does not matter here."""
        for (group_id, topic, partition), (number, packed) in self._held.pop(producer_id, {}).items():
            self._close(group_id, topic, partition, producer_id)
            if not committed or packed is SUPERSEDED:
                continue
            if packed == FORGET:
                self._remove(group_id, topic, partition)
            else:
                self._put(group_id, topic, partition, packed)
            self._supersede(group_id, topic, partition, number)

    def _hold(self, record: OffsetRecord, producer_id: int) -> None:
        group_id, topic, partition, offset = record[:4]
        self._number += 1
        packed = FORGET if offset == NO_OFFSET else self._pack(record)
        self._held.setdefault(producer_id, {})[group_id, topic, partition] = (self._number, packed)
        topics = self._open.setdefault(group_id, {})
        topics.setdefault(topic, {}).setdefault(partition, set()).add(producer_id)

    def _supersede(self, group_id: str, topic: str, partition: int, before: int) -> None:
        for producer_id in self._open.get(group_id, {}).get(topic, {}).get(partition, ()):
            held = self._held[producer_id]
            number, _ = held[group_id, topic, partition]
            if number < before:
                held[group_id, topic, partition] = (number, SUPERSEDED)

    def _let_go(self, group_id: str, topic: str, partition: int) -> None:
        """Nobody holds an offset of this partition any more."""
        for producer_id in tuple(self._open.get(group_id, {}).get(topic, {}).get(partition, ())):
            held = self._held[producer_id]
            del held[group_id, topic, partition]
            if not held:
                del self._held[producer_id]
            self._close(group_id, topic, partition, producer_id)

    def _close(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        topics = self._open[group_id]
        partitions = topics[topic]
        partitions[partition].remove(producer_id)
        if not partitions[partition]:
            del partitions[partition]
            if not partitions:
                del topics[topic]
                if not topics:
                    del self._open[group_id]

    def _put(self, group_id: str, topic: str, partition: int, packed: bytes) -> None:
        try:
            partitions = self._groups[group_id][topic]
        except KeyError:
            topics = self._groups.setdefault(group_id, {})
            partitions = topics[intern(topic)] = {}
        if partition not in partitions:
            self.count += 1
        partitions[partition] = packed

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is None:
            return
        self.count -= 1
        if not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group_id]
