"""Requests that are served together get the answers, and leave the log, that each would have alone."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from ottla.api import produce_turn
from ottla.api.deferred import Deferred
from ottla.api.produce_turn import ALONE_TURNS, TURN_REQUESTS_MAX, UNKNOWN_SKIPPED
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ErrorCode
from ottla.wire.fields import TopicKey
from ottla.wire.produce_shape import Understood, understand
from tests.unit.api import replica_services
from tests.unit.api.produce_services import PRIMED, Broker, Producer, offsets_of
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run
from tests.unit.runtime.metadata import FixedClock
from tests.unit.runtime.replicas import Cluster


def in_loop(scenario: Callable[[Broker], Awaitable[None]], topics: dict[str, TopicConfig] | None = None) -> None:
    async def main() -> None:
        await scenario(Broker(Hosted(topics)))

    run(main)


@pytest.mark.parametrize("version", range(7, 14))
def test_many_producers_are_written_together_and_answered_in_order(version: int) -> None:
    async def scenario(broker: Broker) -> None:
        topic = broker.hosted.table.topic(TOPIC)
        key: TopicKey = topic.id if version >= 13 else TOPIC
        producers = [broker.producer(f"shop-{n}") for n in range(4)]
        for number, producer in enumerate(producers):
            assert not producer.ask(batch_of(), topic=key, index=number % 2, version=version)
        for number, producer in enumerate(producers):
            assert producer.ask(batch_of(2), topic=key, index=number % 2, version=version)
            assert producer.ask(batch_of(3), topic=key, index=number % 2, version=version)
        assert [len(producer.answers) for producer in producers] == [1] * 4
        broker.turn.end()
        found = [offsets_of(await producer.rows(version)) for producer in producers]
        assert found == [[0, 2, 4], [0, 2, 4], [1, 7, 9], [1, 7, 9]]
        assert broker.offsets(0) == broker.offsets(1) == [0, 1, 2, 4, 7, 9]
        assert topic.counters.produce_requests == 12
        assert topic.counters.messages_in == 3 * PRIMED + 4 + 4 * 5
        assert broker.services.metrics.requests[0] == 8  # The others were counted by a dispatcher.
        assert not any(producer.served for producer in producers)
        assert broker.hosted.partition().high_watermark == PRIMED + 12

    in_loop(scenario)


def test_the_end_of_the_turn_is_asked_for_once() -> None:
    async def scenario(broker: Broker) -> None:
        producer = broker.known()
        for turn in (1, 2):
            assert producer.ask(batch_of())
            assert producer.ask(batch_of())
            assert broker.first == turn
            broker.turn.end()
        assert offsets_of(await producer.rows()) == [0, 1, 2, 3, 4]

    in_loop(scenario)


def test_a_turn_that_brings_too_many_is_settled_before_its_end() -> None:
    async def scenario(broker: Broker) -> None:
        producer = broker.known()
        for _ in range(TURN_REQUESTS_MAX):
            assert producer.ask(batch_of())
        assert (producer.taken, len(producer.answers)) == (0, 1 + TURN_REQUESTS_MAX)
        assert producer.ask(batch_of())
        broker.turn.end()
        assert offsets_of(await producer.rows()) == list(range(TURN_REQUESTS_MAX + 2))

    in_loop(scenario)


def test_who_is_alone_does_not_wait_for_the_end_of_the_turn() -> None:
    async def scenario(broker: Broker) -> None:
        producer = broker.known()
        for _ in range(ALONE_TURNS):
            assert producer.ask(batch_of())
            assert producer.taken == 1
            broker.turn.end()
        for _ in range(2):
            assert producer.ask(batch_of())
            assert producer.taken == 0
            broker.turn.end()
        assert producer.ask(batch_of())
        assert producer.ask(batch_of())
        assert producer.taken == 1  # The second of a turn waits.
        broker.turn.end()
        assert producer.ask(batch_of())
        assert producer.taken == 1  # And so does the first of the next.
        broker.turn.end()
        assert offsets_of(await producer.rows()) == list(range(ALONE_TURNS + 6))
        assert broker.services.metrics.requests[0] == ALONE_TURNS + 5

    in_loop(scenario)


def alone(broker: Broker) -> Producer:
    """A producer that has been the only one for long."""
    producer = broker.known()
    for _ in range(ALONE_TURNS):
        assert producer.ask(batch_of())
        broker.turn.end()
    return producer


def test_a_repeated_batch_is_answered_with_its_first_offset() -> None:
    async def scenario(broker: Broker) -> None:
        producer, other = broker.known("a"), broker.known("b")
        for sequence in (0, 1, 0, 3, 2):
            assert producer.ask(batch_of(producer=ProducerFields(5, 0, sequence)))
            assert other.ask(batch_of())
        broker.turn.end()
        rows = await producer.rows()
        assert [row.error_code for row in rows] == [0, 0, 0, 0, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0]
        assert [row.base_offset - PRIMED for row in rows if not row.error_code] == [0, 2, 4, 2, 8]
        assert offsets_of(await other.rows()) == [1, 3, 5, 6, 7, 9]
        assert producer.served == other.served == 5
        assert broker.offsets() == list(range(10))

    in_loop(scenario)


def test_sequences_that_follow_each_other_are_written_together() -> None:
    async def scenario(broker: Broker) -> None:
        producer = broker.known()
        for sequence in range(5):
            assert producer.ask(batch_of(producer=ProducerFields(5, 0, sequence)))
        broker.turn.end()
        assert offsets_of(await producer.rows()) == list(range(6))
        assert producer.served == 0

    in_loop(scenario)


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (batch_of(value=b"v" * 800)[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (
            batch_of(transactional=True, value=b"v" * 800, producer=ProducerFields(5, 0, 0)),
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        (batch_of(value=b"v" * 800, timestamp=NOW_MS + 10 * 86_400_000), ErrorCode.INVALID_TIMESTAMP),
        (batch_of(value=b"v" * 3000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_what_is_refused_is_refused_by_the_ordinary_way(batch: bytearray, code: int) -> None:
    async def scenario(broker: Broker) -> None:
        producer = broker.known()
        for _ in range(UNKNOWN_SKIPPED + 1):  # Until sizes of this length are known.
            producer.ask(batch_of(value=b"v" * 900))
        assert producer.ask(batch_of(value=b"v" * 900))
        end_offset = broker.hosted.partition().log.log_end_offset + 1
        assert not producer.ask(batch)
        assert (await producer.rows())[-1].error_code == code
        assert broker.hosted.partition().log.log_end_offset == end_offset

    in_loop(scenario, {TOPIC: TopicConfig(max_message_bytes=2000, timestamp_after_max_ms=86_400_000)})


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig(timestamp_type_log_append=True),
        TopicConfig(flush_messages=1),
        TopicConfig(record_validation_full=True),
        TopicConfig(compression_type="lz4"),
    ],
)
def test_topics_that_ask_for_more_take_the_ordinary_way(config: TopicConfig) -> None:
    async def scenario(broker: Broker) -> None:
        producer = broker.producer()
        assert not any(producer.ask(batch_of()) for _ in range(2 * UNKNOWN_SKIPPED + 3))
        assert sorted(offsets_of(await producer.rows())) == list(range(2 * UNKNOWN_SKIPPED + 3))

    in_loop(scenario, {TOPIC: config})


def test_a_config_that_changes_counts_at_once() -> None:
    async def scenario(broker: Broker) -> None:
        producer = broker.known()
        assert producer.ask(batch_of())
        broker.turn.end()
        broker.hosted.table.set_config(TOPIC, TopicConfig(timestamp_type_log_append=True))
        assert not producer.ask(batch_of())
        broker.hosted.table.set_config(TOPIC, TopicConfig())
        while not producer.ask(batch_of()):
            assert len(producer.answers) < 3 * UNKNOWN_SKIPPED
        broker.hosted.table.set_config(TOPIC, TopicConfig(flush_messages=1))
        broker.turn.end()  # Taken before, written after: it is synced.
        rows = await producer.rows()
        assert offsets_of(rows) == list(range(len(rows)))
        assert rows[2].log_append_time_ms == cast(FixedClock, broker.services.world.clock).ms
        assert broker.hosted.partition().log.recovery_point == PRIMED + len(rows)

    in_loop(scenario)


def test_a_full_disk_refuses_each_and_keeps_nothing() -> None:
    async def scenario(broker: Broker) -> None:
        producer, lonely = broker.known(), alone(Broker(broker.hosted, broker.services))
        disk = cast(CrashDisk, broker.services.world.disk)
        end_offset = broker.hosted.partition().log.log_end_offset
        disk.fail_writes = lambda size: OSError(errno.ENOSPC, "No space left on device")
        assert producer.ask(batch_of())
        assert producer.ask(batch_of())
        broker.turn.end()
        assert not lonely.ask(batch_of())
        disk.fail_writes = lambda size: None
        assert broker.hosted.partition().log.log_end_offset == end_offset
        codes = [[row.error_code for row in await asker.rows()] for asker in (producer, lonely)]
        assert codes == [[0] + [ErrorCode.KAFKA_STORAGE_ERROR] * 2, [0] * 9 + [ErrorCode.KAFKA_STORAGE_ERROR]]
        assert broker.hosted.failures == []
        assert producer.ask(batch_of())
        broker.turn.end()
        assert (await producer.rows())[-1].base_offset == end_offset

    in_loop(scenario)


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_disk_that_fails_takes_its_directory_out(is_alone: bool) -> None:
    async def scenario(broker: Broker) -> None:
        producer = alone(broker) if is_alone else broker.known()
        end_offset = broker.hosted.partition().log.log_end_offset
        disk = cast(CrashDisk, broker.services.world.disk)
        disk.fail_writes = lambda size: OSError(errno.EIO, "Input/output error")
        assert producer.ask(batch_of()) is not is_alone
        broker.turn.end()
        assert (await producer.rows())[-1].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.hosted.failures
        disk.fail_writes = lambda size: None
        assert broker.hosted.partition().log.log_end_offset == end_offset

    in_loop(scenario)


def test_what_cannot_be_written_for_an_unknown_reason_is_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    async def scenario(broker: Broker) -> None:
        producer, other = broker.known(), broker.known(index=1)
        assert producer.ask(batch_of())
        assert other.ask(batch_of(), index=1)
        monkeypatch.setattr(produce_turn.Run, "write", fail)
        broker.turn.end()
        assert [str(error) for error in producer.errors + other.errors] == ["a bug", "a bug"]

    in_loop(scenario)


def test_a_topic_that_goes_before_the_turn_ends() -> None:
    async def scenario(broker: Broker) -> None:
        producer = broker.known()
        assert producer.ask(batch_of())
        broker.hosted.table.drop(broker.hosted.table.topic(TOPIC).id)
        broker.turn.end()
        assert not producer.ask(batch_of())
        codes = [row.error_code for row in await producer.rows()]
        assert codes == [0] + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2

    in_loop(scenario)


def test_acks_all_waits_for_the_followers() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = Broker(cluster.replicas[1], replica_services.services(cluster))
        producer, hasty = broker.producer("a"), broker.producer("b")
        producer.ask(batch_of(), acks=-1)
        hasty.ask(batch_of())
        for _ in range(2):
            assert producer.ask(batch_of(), acks=-1)
            assert hasty.ask(batch_of())
        broker.turn.end()
        assert offsets_of(await hasty.rows()) == [1, 3, 5]
        waiting = [cast(Deferred, answer) for answer in producer.answers]
        assert not any(answer.done for answer in waiting)
        cluster.catch_up()
        assert all(answer.done for answer in waiting)
        assert offsets_of(await producer.rows()) == [0, 2, 4]

    run(scenario)


def test_acks_all_learns_that_the_leader_changed() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = Broker(cluster.replicas[1], replica_services.services(cluster))
        producer = broker.producer()
        producer.ask(batch_of(), acks=-1)
        cluster.catch_up()
        assert producer.ask(batch_of(), acks=-1)
        broker.turn.end()
        assert producer.ask(batch_of(), acks=-1)
        cluster.change(leader=2)
        cluster.publish()
        broker.turn.end()  # One was written by the old leader and one never was.
        codes = [row.error_code for row in await producer.rows()]
        assert codes == [0, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER]
        assert cluster.partition(1).log.log_end_offset == PRIMED + 2

    run(scenario)


def test_too_few_in_sync_are_refused_before_anything_is_written() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        broker = Broker(cluster.replicas[1], replica_services.services(cluster))
        producer = broker.producer()
        producer.ask(batch_of(), acks=-1)
        cluster.catch_up()
        cluster.change(isr=(1,))
        cluster.publish()
        assert not producer.ask(batch_of(), acks=-1)
        assert [row.error_code for row in await producer.rows()] == [0, ErrorCode.NOT_ENOUGH_REPLICAS]

    run(scenario)


def test_who_never_repeats_itself_is_seldom_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(frame: memoryview) -> Understood | None:
        looks.append(len(frame))
        return understand(frame)

    monkeypatch.setattr(produce_turn, "understand", look)

    async def scenario(broker: Broker) -> None:
        producer = broker.producer()
        for number in range(10 * (UNKNOWN_SKIPPED + 1)):
            assert not producer.ask(batch_of(), topic="x" * (number % 100 + 1))
        assert len(looks) == 10

    in_loop(scenario)


def test_known_requests_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce_turn, "TARGETS_MAX", 2)
    monkeypatch.setattr(produce_turn, "UNKNOWN_SKIPPED", 0)

    async def scenario(broker: Broker) -> None:
        producer = broker.producer()
        assert [producer.ask(batch_of(), index=index) for index in (0, 1, 0, 1)] == [False, False, True, True]
        assert [producer.ask(batch_of(), index=index) for index in (2, 2, 0)] == [False, True, False]
        broker.turn.end()
        assert offsets_of(await producer.rows()) == [0, 0, 1, 1, 0, 1, 2]

    in_loop(scenario)
