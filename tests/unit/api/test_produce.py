"""acks=all: the answer leaves when the in-sync followers have the batch, and says so when they have not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import cast

from ottla.api import produce
from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ErrorCode, InvalidRecordsError
from ottla.wire.compression import Codec
from ottla.wire.produce import ProducedPartition
from ottla.wire.produce_client import ProduceResponse, encode_request, parse_response
from tests.unit.api.replica_services import context, services
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import NoRecordWork, run
from tests.unit.runtime.replicas import TOPIC, Cluster

VERSION = 12
HEADER_BYTES = 5
Answer = Chunks | Deferred | Awaitable[Chunks] | None


def send(
    cluster: Cluster, *, acks: int = -1, node_id: int = 1, timeout_ms: int = 60_000, indexes: Sequence[int] = (0,)
) -> Answer:
    body = encode_request(
        VERSION, [(TOPIC, [(index, batch_of()) for index in indexes])], acks=acks, timeout_ms=timeout_ms
    )
    return produce.handle(context(services(cluster, node_id), 0, VERSION), memoryview(bytearray(body)), 0)


def response(answer: Answer) -> ProduceResponse:
    chunks = answer.chunks if isinstance(answer, Deferred) else answer
    return parse_response(memoryview(b"".join(cast("list[bytes]", chunks))), HEADER_BYTES, VERSION)


def rows(answer: Answer) -> list[ProducedPartition]:
    return response(answer).topics[0][1]


async def done(answer: Answer) -> list[ProducedPartition]:
    assert isinstance(answer, Deferred)
    heard = asyncio.Event()
    answer.listen(heard.set)
    await heard.wait()
    return rows(answer)


def test_the_answer_waits_for_the_followers_without_a_task() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        tasks = len(asyncio.all_tasks())
        answers = [send(cluster) for _ in range(3)]
        assert len(asyncio.all_tasks()) == tasks
        for follower in (2, 2, 3):
            cluster.replicate(follower)
        assert not any(cast(Deferred, answer).done for answer in answers)
        cluster.replicate(3)
        assert [rows(answer)[0].base_offset for answer in answers] == [0, 1, 2]

    run(scenario)


def test_acks_1_does_not_wait() -> None:
    async def scenario() -> None:
        (row,) = rows(send(Cluster(), acks=1))
        assert (row.error_code, row.base_offset) == (0, 0)

    run(scenario)


def test_too_few_in_sync_before_and_after() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        waiting = send(cluster)
        cluster.change(isr=(1,))
        cluster.publish(1)
        (row,) = rows(send(cluster))
        assert row.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert not cast(Deferred, waiting).done
        cluster.change(isr=(1, 2))
        cluster.publish(1)
        cluster.catch_up(2)
        assert rows(waiting)[0].error_code == 0

    run(scenario)


def test_fewer_in_sync_than_asked_for_in_the_end() -> None:
    async def scenario() -> None:
        cluster = Cluster(3, TopicConfig(min_insync_replicas=2))
        waiting = send(cluster)
        cluster.replicate(2)
        cluster.leader.isr = (1,)  # As if it shrank in the moment in which the last follower had it.
        cluster.replicate(2)
        cluster.replicate(3)
        cluster.replicate(3)
        assert rows(waiting)[0].error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    run(scenario)


def test_the_time_of_the_request_is_up() -> None:
    async def scenario() -> None:
        (row,) = await done(send(Cluster(), timeout_ms=1))
        assert row.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(scenario)


def test_a_leader_that_is_none_any_more_says_who_leads() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        waiting = send(cluster)
        cluster.change(leader=2)
        cluster.publish()
        (row,) = rows(waiting)
        assert (row.error_code, row.current_leader) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, (2, 6))
        refused = response(send(cluster))
        assert refused.topics[0][1][0].current_leader == (2, 6)
        assert [endpoint[:3] for endpoint in refused.node_endpoints] == [(2, "host-2", 9092)]

    run(scenario)


def test_one_request_for_many_partitions_is_answered_once() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        answer = send(cluster, indexes=(0, 5, 0))
        assert not cast(Deferred, answer).done
        cluster.catch_up()
        codes = [row.error_code for row in rows(answer)]
        assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
        assert [row.base_offset for row in rows(answer)] == [0, -1, 1]

    run(scenario)


def test_a_flush_and_the_followers_are_both_waited_for() -> None:
    async def scenario() -> None:
        cluster = Cluster(2, TopicConfig(flush_messages=1))
        answer = asyncio.ensure_future(cast("Awaitable[Chunks]", send(cluster)))
        cluster.catch_up(2)
        await asyncio.sleep(0)
        assert not answer.done()
        (row,) = rows(await answer)
        assert (row.error_code, cluster.leader.log.recovery_point) == (0, 1)
        assert cluster.leader.high_watermark == 1

    run(scenario)


def test_who_looks_into_records_waits_for_followers_too() -> None:
    async def scenario() -> None:
        cluster = Cluster(2, TopicConfig(record_validation_full=True))
        answer = asyncio.ensure_future(cast("Awaitable[Chunks]", send(cluster)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (cluster.leader.log.log_end_offset, answer.done()) == (1, False)
        cluster.catch_up(2)
        assert rows(await answer)[0].error_code == 0

    run(scenario)


def test_an_old_message_format_is_not_taken_for_a_codec() -> None:
    async def scenario() -> None:
        old = batch_of()
        old[produce.MAGIC_BYTE], old[produce.CODEC_BYTE] = 1, Codec.ZSTD
        body = encode_request(3, [(TOPIC, [(0, old)])], acks=1, timeout_ms=1000)
        answer = produce.handle(context(services(Cluster(), 1), 0, 3), memoryview(bytearray(body)), 0)
        chunks = b"".join(cast("list[bytes]", answer))
        (row,) = parse_response(memoryview(chunks), 4, 3).topics[0][1]
        assert row.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT

    run(scenario)


class Refusing(NoRecordWork):
    """A record worker that finds fault with two records."""

    async def validate(
        self, batch: bytes, *, requires_keys: bool, timestamp_range: tuple[int, int] | None = None
    ) -> bytes:
        raise InvalidRecordsError(ErrorCode.INVALID_TIMESTAMP, "two of them", [(1, "too old"), (3, "too young")])


def test_the_answer_names_the_records_at_fault() -> None:
    async def scenario() -> None:
        cluster = Cluster(2, TopicConfig(record_validation_full=True))
        cluster.replicas[1].appender._work = Refusing()
        for indexes in ((0,), (0, 0)):
            answer = rows(await cast("Awaitable[Chunks]", send(cluster, indexes=indexes)))
            for row in answer:
                assert (row.error_code, row.error_message) == (ErrorCode.INVALID_TIMESTAMP, "two of them")
                assert list(row.record_errors) == [(1, "too old"), (3, "too young")]
        assert cluster.leader.log.log_end_offset == 0

    run(scenario)
