"""A marker ends a transaction in each partition that takes it, and is acknowledged when it is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from uuid import UUID

import pytest

from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.core.transactions.commands import PendingMarkers
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition
from ottla.runtime import marker_writing
from ottla.runtime.marker_writing import PARTITIONS_PER_TURN_MAX, Marker, MarkerWriter, Results
from ottla.wire.records import iterate
from tests.unit.log.support import read_all
from tests.unit.runtime.hosted import NODE_ID, TOPIC, Hosted, run


class Groups:
    """Hears of markers."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, int, bool]] = []

    def replay_marker(self, partition: int, producer_id: int, *, committed: bool) -> None:
        self.heard.append((partition, producer_id, committed))


def writer_of(hosted: Hosted, groups: Groups | None = None) -> MarkerWriter:
    return MarkerWriter(hosted.table, hosted.clock, hosted.flushes, lambda: groups or Groups())


def at_once(results: Results | Awaitable[Results]) -> Results:
    assert isinstance(results, Mapping)
    return results


def tps(*indexes: int, topic: str = TOPIC) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


def test_a_marker_ends_the_transaction_where_it_wrote() -> None:
    hosted = Hosted()
    hosted.write(7, 0)
    hosted.write(7, 0, index=1)
    assert hosted.partition().last_stable_offset == 0
    results = at_once(writer_of(hosted).write(Marker(7, 0, 5, True), tps(0, 1)))
    assert results == dict.fromkeys(tps(0, 1), ErrorCode.NONE)
    assert hosted.partition().last_stable_offset == hosted.partition().high_watermark == 2
    (record,) = iterate(read_all(hosted.partition().log)[-1])
    assert (record.key, record.value) == (b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x05")


def test_each_partition_stands_for_itself() -> None:
    hosted = Hosted()
    hosted.end(7, committed=True, epoch=4, index=1)
    unknown = TopicPartition("nowhere", 0)
    results = at_once(writer_of(hosted).write(Marker(7, 3, 0, False), [*tps(0, 1, 9), unknown]))
    assert list(results.values()) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_coordinator_that_was_followed_is_refused() -> None:
    hosted = Hosted()
    writer = writer_of(hosted)
    assert at_once(writer.write(Marker(7, 0, 6, True), tps(0))) == {tps(0)[0]: ErrorCode.NONE}
    assert at_once(writer.write(Marker(7, 0, 5, True), tps(0))) == {tps(0)[0]: ErrorCode.TRANSACTION_COORDINATOR_FENCED}


def test_a_repeated_marker_does_no_harm() -> None:
    for version, epoch in ((0, 0), (2, 1)):
        hosted = Hosted()
        hosted.write(7, 0)
        writer = writer_of(hosted)
        for _ in range(3):
            results = at_once(writer.write(Marker(7, epoch, 0, False, version), tps(0)))
            assert results == {tps(0)[0]: ErrorCode.NONE}
        assert [entry[:3] for entry in hosted.partition().log.aborted_transactions(0, 9)] == [(7, 0, 1)]


def test_a_late_marker_does_not_end_the_next_transaction_of_a_new_client() -> None:
    hosted = Hosted()
    writer = writer_of(hosted)
    hosted.write(7, 0)
    late = Marker(7, 1, 0, False, 2)
    writer.write(late, tps(0))
    hosted.write(7, 0, epoch=1)
    assert at_once(writer.write(late, tps(0))) == {tps(0)[0]: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert hosted.partition().last_stable_offset == 2


def test_the_last_epoch_there_is_may_end_its_own_transaction() -> None:
    hosted = Hosted()
    hosted.write(7, 0, epoch=32767)
    assert at_once(writer_of(hosted).write(Marker(7, 32767, 0, True, 2), tps(0))) == {tps(0)[0]: ErrorCode.NONE}


def test_group_coordinators_hear_of_markers_in_their_partitions() -> None:
    hosted = Hosted({TOPIC: TopicConfig(), CONSUMER_OFFSETS_TOPIC: TopicConfig()})
    groups = Groups()
    writer = writer_of(hosted, groups)
    writer.write(Marker(7, 0, 0, True), [*tps(0), *tps(2, topic=CONSUMER_OFFSETS_TOPIC)])
    assert groups.heard == [(2, 7, True)]
    writer.write(Marker(7, 0, -1, True), tps(2, topic=CONSUMER_OFFSETS_TOPIC))
    assert len(groups.heard) == 1


def test_a_marker_is_acknowledged_when_it_is_below_the_high_watermark() -> None:
    hosted = Hosted({TOPIC: TopicConfig(flush_messages=1)})

    async def scenario() -> None:
        results = writer_of(hosted).write(Marker(7, 0, 0, True), tps(0, 1))
        assert isinstance(results, Awaitable)
        assert hosted.partition().high_watermark == 0
        assert await results == dict.fromkeys(tps(0, 1), ErrorCode.NONE)
        assert [hosted.partition(index).high_watermark for index in range(3)] == [1, 1, 0]

    run(scenario)


def test_a_failed_sync_is_told() -> None:
    hosted = Hosted({TOPIC: TopicConfig(flush_messages=1)})

    async def scenario() -> None:
        results = writer_of(hosted).write(Marker(7, 0, 0, True), tps(0))
        hosted.world.disk.fail_syncs = lambda: OSError(5, "Input/output error")  # type: ignore[attr-defined]
        assert isinstance(results, Awaitable)
        assert await results == {tps(0)[0]: ErrorCode.KAFKA_STORAGE_ERROR}
        assert hosted.failures

    run(scenario)


def test_many_markers_leave_others_their_turn() -> None:
    count = PARTITIONS_PER_TURN_MAX * 2 + 1
    hosted = Hosted(partitions=count)

    async def scenario() -> None:
        everywhere = tps(*range(count))
        results = writer_of(hosted).write(Marker(7, 0, 0, True), everywhere)
        assert isinstance(results, Awaitable)
        assert await results == dict.fromkeys(everywhere, ErrorCode.NONE)

    run(scenario)


def test_a_coordinator_here_needs_no_network() -> None:
    hosted = Hosted()
    hosted.write(7, 0)
    pending = PendingMarkers("payments", 7, 1, False, tuple(tps(0)), 2, 1)
    assert at_once(writer_of(hosted).send(pending, 3)) == {tps(0)[0]: ErrorCode.NONE}
    (producer,) = hosted.partition().log.producers.active_producers()
    assert (producer.epoch, producer.coordinator_epoch, producer.transaction_first_offset) == (1, 3, None)


def test_a_marker_with_followers_counts_when_they_have_it() -> None:
    hosted = replicated_hosted()

    async def story() -> None:
        results = writer_of(hosted).write(Marker(7, 0, 5, True), tps(0))
        assert isinstance(results, Awaitable)
        writing = asyncio.ensure_future(_awaited(results))
        await asyncio.sleep(0)
        assert not writing.done()
        hosted.partition().follower_fetched(2, -1, 1, 0, hosted.table.neighbours.now_ms())
        assert await writing == {TopicPartition(TOPIC, 0): ErrorCode.NONE}

    run(story)


def test_a_marker_that_followers_do_not_take_is_to_be_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_writing, "COMMIT_MS_MAX", 10)
    hosted = replicated_hosted()

    async def story() -> None:
        results = await _awaited(writer_of(hosted).write(Marker(7, 0, 5, True), tps(0)))
        assert results == {TopicPartition(TOPIC, 0): ErrorCode.REQUEST_TIMED_OUT}
        writing = asyncio.ensure_future(_awaited(writer_of(hosted).write(Marker(7, 0, 5, True), tps(0))))
        await asyncio.sleep(0)
        hosted.table.host(topic_led_by(2, leader_epoch=1), TopicConfig())
        assert await writing == {TopicPartition(TOPIC, 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}

    run(story)


def test_a_marker_needs_replicas_in_sync() -> None:
    hosted = replicated_hosted(TopicConfig(min_insync_replicas=2), isr=(NODE_ID,))
    results = at_once(writer_of(hosted).write(Marker(7, 0, 5, True), tps(0)))
    assert results == {TopicPartition(TOPIC, 0): ErrorCode.NOT_ENOUGH_REPLICAS}
    assert hosted.partition().log.log_end_offset == 0


def replicated_hosted(config: TopicConfig | None = None, isr: tuple[int, ...] = (NODE_ID, 2)) -> Hosted:
    hosted = Hosted({"other": TopicConfig()})
    hosted.table.host(topic_led_by(NODE_ID, isr), config or TopicConfig())
    return hosted


def topic_led_by(leader: int, isr: tuple[int, ...] = (NODE_ID, 2), leader_epoch: int = 0) -> TopicImage:
    state = PartitionImage(
        replicas=(NODE_ID, 2), isr=isr, leader=leader, leader_epoch=leader_epoch, partition_epoch=leader_epoch
    )
    return TopicImage(TOPIC, UUID(int=500), (state,))


async def _awaited(results: Results | Awaitable[Results]) -> Results:
    return results if isinstance(results, Mapping) else await results
