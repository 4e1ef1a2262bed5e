"""DeleteRecords on a replicated partition: answered when every replica that lives begins where it should."""

from __future__ import annotations

import asyncio

from ottla.api import delete_records
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.unit.api.replica_services import context, services
from tests.unit.runtime.hosted import run
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
