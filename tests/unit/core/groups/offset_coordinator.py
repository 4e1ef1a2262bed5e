"""The offsets of a group coordinator on a log in memory, for tests: it plays the runtime, transactions included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from ottla.core.controller.image import MetadataImage
from ottla.core.coordination import Command, Outcome
from ottla.core.groups import classic, offsets
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.offset_commands import (
    CommitOffsets,
    CommitTransactionalOffsets,
    FetchedOffset,
    FetchOffsets,
    NewOffset,
    TopicPartitions,
)
from ottla.core.groups.offset_sweeps import SLICE_PAUSE_MS
from ottla.core.groups.offsets import OffsetStore
from ottla.core.groups.records import GroupRecord
from ottla.core.groups.table import GroupState
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode

START_MS = 1_000_000
TOPIC_ID = UUID(int=7)
REPLAYS = {**classic.REPLAYS, **offsets.REPLAYS}


class Marker(NamedTuple):
    """The end of a transaction."""

    producer_id: int
    committed: bool


Entry: TypeAlias = tuple[GroupRecord, int] | tuple[Literal["marker"], Marker]


class OffsetCoordinator:
    """The state of one shard, with the offset part of its tables."""

    def __init__(self, configs: Mapping[str, str] | None = None) -> None:
        self.config = BrokerConfig.from_properties(configs)
        self.now_ms = START_MS
        self.log: list[Entry] = []
        self.state = self._new_state()
        self._perform(offsets.loaded(self.state, self.now_ms))

    def _new_state(self) -> GroupState:
        return GroupState(lambda: self.config, MetadataImage, lambda: UUID(int=1), OffsetStore())

    def ask(self, command: Command[Any]) -> Any:
        """The answer; raises ApiError."""
        outcome = offsets.DECISIONS[type(command)](self.state, command, 1, self.now_ms)
        self._perform(outcome)
        [(ticket, answer)] = outcome.answers
        assert ticket == 1
        return answer

    def code(self, command: Command[Any]) -> ErrorCode:
        """How a command went as a whole."""
        before = (len(self.log), dump(self.state.offsets))
        try:
            self.ask(command)
        except ApiError as error:
            assert before == (len(self.log), dump(self.state.offsets))
            return error.code
        return ErrorCode.NONE

    def perform(self, outcome: Outcome[GroupRecord]) -> None:
        self._perform(outcome)

    def _perform(self, outcome: Outcome[GroupRecord]) -> None:
        for record in outcome.records:
            self.log.append((record, outcome.producer_id))
            REPLAYS[type(record)](self.state, record, outcome.producer_id)

    def end(self, producer_id: int, *, committed: bool) -> None:
        """A marker comes."""
        self.log.append(("marker", Marker(producer_id, committed)))
        offsets.replay_marker(self.state, producer_id, committed=committed)

    def tick(self) -> list[GroupRecord]:
        """What the first timer that is due writes."""
        key = self.state.timers.pop_due(self.now_ms)
        if key is None:
            return []
        outcome = offsets.DUE[key[0]](self.state, key, self.now_ms)
        self._perform(outcome)
        return list(outcome.records)

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, and what is under way then come to its end."""
        self.now_ms += duration_ms
        while self.state.timers.next_deadline_ms() is not None:
            self.tick()
            if not self.state.offsets.sweeps:
                break
            self.now_ms += SLICE_PAUSE_MS

    def reload(self) -> None:
        """Replay the log into a new shard."""
        self.state = self._new_state()
        for entry in self.log:
            if entry[0] == "marker":
                offsets.replay_marker(self.state, entry[1].producer_id, committed=entry[1].committed)
            else:
                REPLAYS[type(entry[0])](self.state, *entry)
        self._perform(offsets.loaded(self.state, self.now_ms))

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.state.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def commit(self, offset: int, *, group_id: str = "g", topic: str = "t", partition: int = 0, **more: Any) -> Any:
        new = NewOffset(topic, TOPIC_ID, partition, offset, 3, "note")
        return self.ask(CommitOffsets(group_id=group_id, offsets=[new], **more))

    def commit_in(
        self,
        producer_id: int,
        offset: int,
        *,
        topic: str = "t",
        topic_id: UUID = TOPIC_ID,
        partition: int = 0,
        **more: Any,
    ) -> Any:
        """Commit in a transaction."""
        new = NewOffset(topic, topic_id, partition, offset)
        return self.ask(
            CommitTransactionalOffsets(group_id="g", offsets=[new], producer_id=producer_id, producer_epoch=0, **more)
        )

    def fetch(
        self, *, group_id: str = "g", topic: str = "t", partition: int = 0, require_stable: bool = False
    ) -> FetchedOffset:
        asked = [TopicPartitions(topic, [partition])]
        [found] = self.ask(FetchOffsets(group_id=group_id, topics=asked, require_stable=require_stable))
        assert found.topic == topic
        [offset] = found.offsets
        assert isinstance(offset, FetchedOffset)
        return offset


def dump(store: OffsetStore) -> dict[tuple[str, str, int], Any]:
    """Everything that is committed."""
    return {
        (group_id, topic, partition): store.packed.unpack(packed)
        for group_id, topics in store._groups.items()
        for topic, partitions in topics.items()
        for partition, packed in partitions.items()
    }


def held(store: OffsetStore) -> dict[int, dict[tuple[str, str, int], Any]]:
    """Everything that waits for a marker, without the numbers."""
    return {
        producer_id: {place: store.packed.unpack(packed) if packed else packed for place, (_, packed) in places.items()}
        for producer_id, places in store._held.items()
    }
