"""A broker as far as OffsetCommit goes, for tests: real coordinators and logs, the disk in memory."""

from __future__ import annotations

import asyncio
import errno
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from ottla.api import offset_commit
from ottla.api.context import RequestContext, Services
from ottla.core.controller.image import ImageDelta, MetadataImage, PartitionImage, TopicImage
from ottla.core.groups.committed_offset import CommittedOffset
from ottla.core.groups.records import ClassicGroupRecord, ClassicMemberRecord
from ottla.core.groups.shard import GroupShard
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, OttlaError
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC
from ottla.runtime.coordinator_kinds import group_kind
from ottla.runtime.coordinator_shard import CoordinatorShard
from ottla.runtime.coordinators import Coordinators
from ottla.runtime.metrics import Metrics
from ottla.runtime.repeated_commits import RepeatedCommits
from tests.unit.api.offset_services import chunks_of
from tests.unit.core.groups.offset_coordinator import dump, held
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.runtime.hosted import NODE_ID, Hosted

IDS = {"t": UUID(int=1), "u": UUID(int=2)}
STATE = PartitionImage(replicas=(NODE_ID,), isr=(NODE_ID,), leader=NODE_ID)
INTERNAL = TopicImage(CONSUMER_OFFSETS_TOPIC, UUID(int=100), (STATE,) * 3)
HOURS_MS = 36_000_000
"""No session ends: the timers are those of the loop, whose time is not that of these brokers."""
MEMBER = ClassicMemberRecord("m", None, "c", "h", HOURS_MS, HOURS_MS, b"", b"")
COMPACTED = TopicConfig(cleanup_compact=True, cleanup_delete=False)


class CommittingNode:
    """A broker as far as commits go."""

    def __init__(
        self, config: TopicConfig = COMPACTED, codec: str = "0", repeated: RepeatedCommits | None = None
    ) -> None:
        properties = {"offsets.topic.compression.codec": codec, "offsets.topic.num.partitions": "3"}
        self.hosted = Hosted({CONSUMER_OFFSETS_TOPIC: config}, properties)
        kind = group_kind(lambda: self.hosted.config, lambda: self.services.image, lambda: UUID(int=1))
        self.groups = Coordinators(
            kind,
            self.hosted.world,
            self.hosted.table,
            self.hosted.flushes,
            lambda: self.hosted.config,
            has_files=lambda _: False,
        )
        self.groups.repeated = self.repeated = repeated or RepeatedCommits()
        self.services = cast(
            Services,
            SimpleNamespace(
                image=MetadataImage(),
                groups=self.groups,
                metrics=Metrics(),
                world=self.hosted.world,
            ),
        )
        self.know({"t": 2, "u": 1})

    @property
    def disk(self) -> CrashDisk:
        return cast(CrashDisk, self.hosted.world.disk)

    def know(self, topics: dict[str, int]) -> None:
        """The metadata is another one: these topics have so many partitions."""
        known = [TopicImage(name, IDS[name], (STATE,) * count) for name, count in topics.items()] + [INTERNAL]
        image = MetadataImage(
            topics={topic.name: topic for topic in known}, topics_by_id={topic.id: topic for topic in known}
        )
        is_first, self.services.image = not self.services.image.topics, image
        if is_first:
            self.groups.follow(image, NODE_ID)
        else:
            self.groups.metadata_changed(image, ImageDelta(), NODE_ID)

    async def ask(self, request: bytes, version: int) -> list[bytes]:
        ctx = RequestContext(self.services, 8, version, 77, "c", "h", "PLAINTEXT")
        return await chunks_of(offset_commit.handle(ctx, memoryview(bytearray(b"head" + request)), 4))

    def submit(self, group: str, command: Any) -> None:
        try:
            answer = self.groups.submit(group, command)
        except ApiError:
            return
        if isinstance(answer, asyncio.Future):
            answer.cancel()

    def group_is(self, record: ClassicGroupRecord) -> None:
        """As if the record had been written."""
        coordinator = self.groups.at_work_for(record.group_id)
        if coordinator is not None:
            coordinator.shard.replay(record, -1)

    def offset(self, group: str, topic: str = "t", partition: int = 0) -> CommittedOffset | None:
        coordinator = self.groups.at_work_for(group)
        return None if coordinator is None else shard_of(coordinator).state.offsets.get(group, topic, partition)

    def marker(self, group: str, producer_id: int, *, committed: bool) -> None:
        index = self.groups.partition_for(group)
        partition = self.hosted.partition(index, CONSUMER_OFFSETS_TOPIC)
        try:
            partition.append_marker(producer_id, 0, 0, committed=committed, now_ms=self.hosted.clock.ms)
        except OttlaError:
            return
        self.groups.replay_marker(index, producer_id, committed=committed)
        self.hosted.flushes.begin(partition)

    def fail_next_write(self) -> None:
        def fails(_size: int) -> OSError | None:
            self.disk.fail_writes = lambda _: None
            return OSError(errno.ENOSPC, "full")

        self.disk.fail_writes = fails

    def seen(self) -> Any:
        """The log and the state of every coordinator."""
        found: list[Any] = []
        for index in range(len(INTERNAL.partitions)):
            partition = self.hosted.partition(index, CONSUMER_OFFSETS_TOPIC)
            if partition.log_or_none is not None:
                segment = partition.log.segments[-1]
                written = segment.log.get().pread(segment.size, 0)
                found.append((index, partition.log.log_end_offset, partition.high_watermark, written))
        for coordinator in self.groups.active.values():
            state = shard_of(coordinator).state
            heard = {
                (group_id, member_id): getattr(member, "deadline_ms", 0)
                for group_id, group in state.groups.items()
                for member_id, member in getattr(group, "members", {}).items()
            }
            found.append((dump(state.offsets), held(state.offsets), state.offsets.count, sorted(state.groups), heard))
        return found


def shard_of(coordinator: CoordinatorShard[Any]) -> GroupShard:
    return cast(GroupShard, coordinator.shard)


def stable(group: str, generation: int) -> ClassicGroupRecord:
    """A group with one member."""
    return ClassicGroupRecord(
        group_id=group,
        protocol_type="consumer",
        generation=generation,
        protocol="p",
        leader="m",
        members=(MEMBER,),
    )
