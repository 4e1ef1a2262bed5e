"""A member of a consumer group: heartbeats, takes over and gives back partitions, reads them, commits where it is.

Theory of operation. Three tasks share a state: the heartbeat says what the member owns and learns what it should; the
reader reads what it owns; the committer commits positions. A partition is owned from the moment its committed offset
was read until it is given back, after a last commit. When the coordinator no longer knows the member, it drops all and
joins again: what it read and did not commit is read again by somebody.

A coordinator names an assignment once, and again only to who says everything about itself. So after a heartbeat whose
answer was lost, or was not wholly taken in, the next one says everything, as those of real clients do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.model.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from simulator.chance import uuids
from simulator.clients.cluster import GROUP
from simulator.clients.connection import Gone
from simulator.clients.reader import Reader
from simulator.history import NEVER_US, OffsetUse, Place

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.history import History

REBALANCE_TIMEOUT_MS: Final = 10_000
LOST: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
REFUSED: Final = LOST | {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
"""After these a commit was not carried out; after others it may have been, or will be."""


class GroupMember:
    """One consumer of a group."""

    def __init__(self, cluster: ClusterClient, history: History, group: str, topics: list[str]) -> None:
        self.cluster = cluster
        self.history = history
        self.group = group
        self.stopped = False
        self.owned: dict[Place, None] = {}
        self.epoch = 0
        self._topics = topics
        self._member_id = str(uuids(cluster.rng))
        self._target: dict[Place, None] | None = None
        self._may_have_missed = True
        """Whether the coordinator may have named an assignment that did not get here."""
        self._interval_s = 1.0
        self._reader = Reader(cluster, history, [], committed_only=True)
        self._reader.name = f"{cluster.name}/{group}"

    async def run(self, commit_seconds: float) -> None:
        self.cluster.loop.start(self._reader.run())
        self.cluster.loop.start(self._commit_now_and_then(commit_seconds))
        attempt = 0
        while not self.stopped:
            try:
                await self._heartbeat()
                changed = await self._reconcile()
                attempt = 0
                await asyncio.sleep(0.0 if changed else self._interval_s)
            except Gone:
                attempt += 1
                await self.cluster.back_off(attempt)
        self._reader.stopped = True

    # -- membership

    async def _heartbeat(self) -> None:
        is_full = self.epoch == 0 or self._may_have_missed
        self._may_have_missed = True
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self._member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if is_full else -1,
            subscribed_topic_names=self._topics if is_full else None,
            topic_partitions=self._owned_rows(),
        )
        connection = await self.cluster.coordinator(self.group, GROUP)
        answer = await connection.request(request, ConsumerGroupHeartbeatResponse, timeout_ms=5000)
        code = ErrorCode(answer.error_code)
        if code in LOST:
            self._lose_everything()
            return
        if code is not ErrorCode.NONE:
            raise Gone(code.name)
        self.epoch = answer.member_epoch
        self._interval_s = min(answer.heartbeat_interval_ms, 2000) / 1000
        if answer.assignment is not None:
            self._target = await self._places(answer.assignment.topic_partitions)
        self._may_have_missed = False

    async def _places(self, rows: Sequence[TopicPartitions]) -> dict[Place, None]:
        """What is assigned, by name; Gone if nobody says what a topic is called."""
        if any(row.topic_id not in self.cluster.topic_ids.values() for row in rows):
            await self.cluster.refresh(self._topics)
        names = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        if any(row.topic_id not in names for row in rows):
            raise Gone("a topic that nobody knows is assigned")
        return {Place(names[row.topic_id], index): None for row in rows for index in row.partitions}

    def _owned_rows(self) -> list[TopicPartitions]:
        by_topic: dict[str, list[int]] = {}
        for place in self.owned:
            by_topic.setdefault(place.topic, []).append(place.partition)
        ids = self.cluster.topic_ids
        return [TopicPartitions(topic_id=ids[name], partitions=found) for name, found in by_topic.items()]

    async def _reconcile(self) -> bool:
        """Give back what is no longer assigned, take what is; whether there is news for the coordinator."""
        target = self._target
        if target is None:
            return False
        revoked = [place for place in self.owned if place not in target]
        if revoked:
            await self._commit(revoked)
            for place in revoked:
                self.owned.pop(place, None)
                self._reader.positions.pop(place, None)
            self._reader.generation += 1
            return True
        added = [place for place in target if place not in self.owned]
        self._target = None
        if not added:
            return False
        try:
            offsets = await self._committed(added)
        except Gone:
            self._target = target
            raise
        for place in added:
            self.owned[place] = None
            self._reader.positions[place] = max(offsets[place], 0)
        self._reader.generation += 1
        return True

    def _lose_everything(self) -> None:
        self.epoch = 0
        self._target = None
        self.owned.clear()
        self._reader.positions.clear()
        self._reader.generation += 1

    def position_of(self, place: Place) -> int:
        """Where it reads, -1 if it does not own the partition."""
        return self._reader.positions.get(place, -1)

    def leave(self) -> None:
        """As a process that ends without a word: another member takes over when its session ends."""
        self.stopped = True

    # -- offsets

    async def _commit_now_and_then(self, seconds: float) -> None:
        while not self.stopped:
            await asyncio.sleep(self.cluster.rng.expovariate(1 / seconds))
            try:
                await self._commit(list(self.owned))
            except Gone:
                continue

    async def _commit(self, places: list[Place]) -> None:
        """Commit where the reader is; errors other than of the connection change nothing."""
        positions = {place: self._reader.positions[place] for place in places if place in self._reader.positions}
        if not positions or not self.epoch:
            return
        ids, begun_us = self.cluster.topic_ids, self.cluster.room.timeline.now_us
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self.epoch,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequestTopic(
                    topic_id=ids[place.topic],
                    partitions=[OffsetCommitRequestPartition(partition_index=place.partition, committed_offset=offset)],
                )
                for place, offset in positions.items()
            ],
        )
        connection = await self.cluster.coordinator(self.group, GROUP)
        try:
            answer = await connection.request(request, OffsetCommitResponse, timeout_ms=5000)
        except Gone:
            for place, offset in positions.items():
                self._note_commit(begun_us, place, offset, None)
            raise
        for topic, (place, offset) in zip(answer.topics, positions.items(), strict=True):
            self._note_commit(begun_us, place, offset, ErrorCode(topic.partitions[0].error_code))

    def _note_commit(self, begun_us: int, place: Place, offset: int, code: ErrorCode | None) -> None:
        """A commit was answered so; None: not at all."""
        if code in REFUSED:
            return
        done_us = NEVER_US
        if code is ErrorCode.NONE:
            done_us = self.cluster.room.timeline.now_us
            self.cluster.room.counts[f"done: commit of {type(self).__name__}"] += 1
        self.history.offsets.append(OffsetUse(begun_us, done_us, self.group, place, offset, is_read=False))

    @property
    def _fetches_as(self) -> tuple[str | None, int]:
        """Who asks for the group's offsets."""
        return self._member_id, self.epoch

    async def _committed(self, places: list[Place]) -> dict[Place, int]:
        """The group's offsets; Gone if they cannot be had yet."""
        ids, begun_us = self.cluster.topic_ids, self.cluster.room.timeline.now_us
        member_id, member_epoch = self._fetches_as
        group = OffsetFetchRequestGroup(
            group_id=self.group,
            member_id=member_id,
            member_epoch=member_epoch,
            topics=[
                OffsetFetchRequestTopics(topic_id=ids[place.topic], partition_indexes=[place.partition])
                for place in places
            ],
        )
        connection = await self.cluster.coordinator(self.group, GROUP)
        request = OffsetFetchRequest(groups=[group], require_stable=True)
        answer = (await connection.request(request, OffsetFetchResponse, timeout_ms=5000)).groups[0]
        if answer.error_code:
            if ErrorCode(answer.error_code) in LOST:
                self._lose_everything()
            raise Gone(ErrorCode(answer.error_code).name)
        names = {topic_id: name for name, topic_id in ids.items()}
        found: dict[Place, int] = {}
        for topic in answer.topics:
            for row in topic.partitions:
                if row.error_code:
                    raise Gone(ErrorCode(row.error_code).name)
                found[Place(names[topic.topic_id], row.partition_index)] = row.committed_offset
        now_us = self.cluster.room.timeline.now_us
        for place, offset in found.items():
            self.history.offsets.append(OffsetUse(begun_us, now_us, self.group, place, offset, is_read=True))
        return found
