"""DeleteRecords: stored for many partitions at once, and answered when every replica that lives begins there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api import delete_records, turns
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ErrorCode, OttlaError, OutOfSpaceError
from ottla.runtime.partition import Partition
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.unit.api.replica_services import context, services
from tests.unit.api.turns import Turns
from tests.unit.runtime.hosted import Hosted, run
from tests.unit.runtime.replicas import TOPIC, Cluster


async def delete(cluster: Cluster, offset: int, timeout_ms: int = 60_000, at: int = 1) -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=TOPIC, partitions=[asked])], timeout_ms=timeout_ms)
    answer = await delete_records.handle(context(services(cluster, at), 21, 2), request)
    return answer.topics[0].partitions[0]


def replicated(brokers: int = 2) -> Cluster:
    cluster = Cluster(brokers, TopicConfig())
    for _ in range(3):
        cluster.produce()
    cluster.catch_up()
    return cluster


def test_the_answer_waits_for_the_followers() -> None:
    async def scenario() -> None:
        cluster = replicated()
        answer = asyncio.ensure_future(delete(cluster, 2))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not answer.done()
        cluster.catch_up()
        assert (await answer).low_watermark == 2
        assert cluster.partition(2).log.log_start_offset == 2

    run(scenario)


def test_the_time_is_up() -> None:
    async def scenario() -> None:
        assert (await delete(replicated(), 2, timeout_ms=1)).error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_a_sole_replica_waits_for_nobody() -> None:
    async def scenario() -> None:
        assert (await delete(replicated(1), -1)).low_watermark == 3

    run(scenario)


def test_a_follower_deletes_nothing_by_itself() -> None:
    async def scenario() -> None:
        refused = await delete(replicated(), 2, at=2)
        assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(scenario)


COUNT = 100


class Stored:
    """Partitions that begin where they end, of two topics, and what is stored of them."""

    def __init__(self) -> None:
        configs = {"a": TopicConfig(), "b": TopicConfig(), "compacted": COMPACTED, "kept": KEPT}
        self.hosted = Hosted(configs, partitions=COUNT)
        self.services = services(cast(Cluster, SimpleNamespace(replicas={1: self.hosted})))
        self.maintenance = cast(Any, self.services.maintenance)
        self.maintenance.raise_starts = self._raise_starts
        self.calls: list[list[Partition]] = []
        self.failing: dict[Partition, OttlaError] = {}

    async def _raise_starts(self, starts: Mapping[Partition, int]) -> dict[Partition, OttlaError]:
        self.calls.append(list(starts))
        return self.failing

    async def delete(self, *topics: tuple[str, Sequence[tuple[int, int]]]) -> list[list[tuple[int, int, int]]]:
        """Index, code and low watermark of each."""
        asked = [
            DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsPartition(partition_index=n, offset=at) for n, at in wanted]
            )
            for name, wanted in topics
        ]
        request = DeleteRecordsRequest(topics=asked, timeout_ms=1000)
        answer = await delete_records.handle(context(self.services, 21, 2), request)
        assert [topic.name for topic in answer.topics] == [name for name, _ in topics]
        return [
            [(row.partition_index, row.error_code, row.low_watermark) for row in topic.partitions]
            for topic in answer.topics
        ]


COMPACTED = TopicConfig(cleanup_delete=False, cleanup_compact=True)
KEPT = TopicConfig(cleanup_delete=False)
"""What an empty cleanup.policy says: for good, as long as nobody deletes records by hand."""


def test_the_starts_of_all_partitions_are_stored_together() -> None:
    async def scenario() -> None:
        stored, every = Stored(), [(index, -1) for index in range(COUNT)]
        assert await stored.delete(("a", every), ("b", every)) == [[(n, 0, 0) for n in range(COUNT)]] * 2
        assert [len(partitions) for partitions in stored.calls] == [2 * COUNT]

    run(scenario)


def test_each_partition_is_refused_by_itself() -> None:
    async def scenario() -> None:
        stored = Stored()
        full, there = stored.hosted.partition(2, "a"), (ErrorCode.NONE, 0)
        stored.failing = {full: OutOfSpaceError("/data", "full")}
        rows = await stored.delete(("a", [(1, 0), (COUNT, 0), (2, 0)]), ("c", [(0, 0)]), ("compacted", [(3, 0)]))
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert rows == [
            [(1, *there), (COUNT, unknown, -1), (2, ErrorCode.KAFKA_STORAGE_ERROR, -1)],
            [(0, unknown, -1)],
            [(3, ErrorCode.POLICY_VIOLATION, -1)],
        ]
        assert stored.calls == [[stored.hosted.partition(1, "a"), full]]

    run(scenario)


def test_records_of_a_topic_that_nothing_cleans_up_may_be_deleted() -> None:
    async def scenario() -> None:
        assert await Stored().delete(("kept", [(1, 0)])) == [[(1, ErrorCode.NONE, 0)]]

    run(scenario)


def test_a_partition_that_is_not_there_is_said_not_to_be_whatever_its_topic_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_records, "INTERNAL_TOPICS", frozenset({"b"}))

    async def scenario() -> None:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        rows = await Stored().delete(("b", [(COUNT, 0), (-1, 0)]), ("compacted", [(COUNT, 0), (-1, 0)]))
        assert rows == [[(COUNT, unknown, -1), (-1, unknown, -1)]] * 2

    run(scenario)


def test_a_partition_that_goes_while_its_start_is_stored_is_not_begun_anew() -> None:
    async def scenario() -> None:
        stored = Stored()
        partition = stored.hosted.partition(1, "a")

        async def raise_starts(starts: Mapping[Partition, int]) -> dict[Partition, OttlaError]:
            partition.let_go()
            partition.log_or_none = None
            return {}

        stored.maintenance.raise_starts = raise_starts
        assert await stored.delete(("a", [(1, 0)])) == [[(1, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]]
        assert partition.log_or_none is None

    run(scenario)


def test_others_have_their_turn_while_records_of_many_partitions_are_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        stored, counted = Stored(), Turns(monkeypatch, turns)
        stored.maintenance.checked_start = counted.counted(stored.maintenance.checked_start)
        await stored.delete(("a", [(index, 0) for index in range(COUNT)]))
        assert counted.calls == COUNT
        assert counted.most_calls <= delete_records.DELETIONS_PER_TURN

    run(scenario)


def test_records_of_an_internal_topic_are_not_an_administrators_to_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_records, "INTERNAL_TOPICS", frozenset({TOPIC}))

    async def scenario() -> None:
        assert (await delete(replicated(1), -1)).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(scenario)
