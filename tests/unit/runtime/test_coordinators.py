"""All coordinators of a kind: which one a key belongs to, and how they come and go with leadership."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.controller.image import ImageDelta, MetadataImage, PartitionImage, TopicImage
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.coordinators import key_hash, then
from tests.unit.runtime.counting import NODE_ID, TOPIC, TOPIC_ID, Add, Count, CountingBroker, Get, WaitFor

KEY = "group"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 10)

    asyncio.run(bounded())


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        call()
    return refused.value.code


def led_by(broker: CountingBroker, *leaders: int, epoch: int = 1) -> MetadataImage:
    states = tuple(
        PartitionImage(replicas=(NODE_ID, 2), isr=(NODE_ID, 2), leader=leader, leader_epoch=epoch) for leader in leaders
    )
    return replace(broker.image, topics={TOPIC: TopicImage(TOPIC, TOPIC_ID, states)})


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("", 0),
        ("group", 98629247),
        ("polygenelubricants", 0),  # The one hash whose sign Java cannot take away.
        ("\U0001f600", 1772899),
    ],
)
def test_a_key_has_the_hash_that_java_gives_it(key: str, expected: int) -> None:
    assert key_hash(key) == expected


@given(st.text())
def test_a_hash_is_what_the_definition_says(key: str) -> None:
    units = key.encode("utf-16-be", "surrogatepass")
    hashed = 0
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2])) % 2**32
    signed = hashed - 2**32 if hashed >= 2**31 else hashed
    assert key_hash(key) == (0 if signed == -(2**31) else abs(signed))


def test_a_key_belongs_to_a_partition_before_the_topic_is_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, partitions=7)
        assert broker.coordinators.partition_for(KEY) == key_hash(KEY) % 50
        assert code_of(lambda: broker.coordinators.submit(KEY, Get("a"))) is ErrorCode.NOT_COORDINATOR
        broker.start()
        assert broker.coordinators.partition_for(KEY) == key_hash(KEY) % 7
        broker.coordinators.submit(KEY, Add("a"))
        assert broker.shards[key_hash(KEY) % 7].counts == {"a": 1}

    run(scenario)


def test_long_keys_are_not_kept(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.start()
        broker.coordinators.submit("k" * 100_000, Add("a"))
        broker.coordinators.submit("k", Add("a"))
        assert list(broker.coordinators._hashes) == ["k"]

    run(scenario)


def test_partitions_without_files_are_at_work_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, partitions=50)
        coordinators = broker.start()
        assert coordinators.counts() == {"active": 50, "loading": 0, "failed": 0}
        assert broker.offload.calls == []
        assert all(partition.log_or_none is None for partition in broker.table)

    run(scenario)


def test_a_reopened_log_is_loaded_and_refuses_meanwhile(tmp_path: Path) -> None:
    async def before() -> None:
        broker = CountingBroker(tmp_path, partitions=3)
        for coordinator in broker.start().active.values():
            coordinator.submit(Add("a", 2))

    async def after() -> None:
        broker = CountingBroker(tmp_path, partitions=3)
        coordinators = broker.start()
        assert coordinators.counts() == {"active": 0, "loading": 3, "failed": 0}
        assert code_of(lambda: coordinators.submit(KEY, Get("a"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        with pytest.raises(ApiError) as refused:
            await coordinators.broadcast(lambda: Get("a"))
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await coordinators.loaded()
        assert await coordinators.broadcast(lambda: Get("a")) == [2, 2, 2]
        assert all(shard.is_loaded for shard in broker.shards)
        assert coordinators.submit(KEY, Add("a")) == 3
        assert coordinators.loads == 3
        await coordinators.close()

    run(before)
    run(after)


def test_leadership_moves_away_and_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, partitions=2)
        coordinators = broker.start()
        for coordinator in coordinators.active.values():
            coordinator.submit(Add("a"))
        waiting = coordinators.active[1].submit(WaitFor("b"))
        delta = ImageDelta(partitions_changed={TOPIC_ID: frozenset({1})})
        coordinators.metadata_changed(led_by(broker, NODE_ID, 2), delta, NODE_ID)
        with pytest.raises(ApiError) as refused:
            await waiting  # type: ignore[misc]
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert list(coordinators.active) == [0]
        assert coordinators.active[0].epoch == 1
        coordinators.metadata_changed(led_by(broker, NODE_ID, NODE_ID, epoch=2), delta, NODE_ID)
        await coordinators.loaded()
        assert coordinators.active[1].epoch == 2
        assert coordinators.active[1].submit(Add("a")) == 2
        assert len(broker.shards) == 3  # The one that stayed was not loaded again.

    run(scenario)


def test_a_load_that_was_overtaken_changes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        coordinators.submit(KEY, Add("a"))
        coordinators.resign(0)
        coordinators.elect(0, 1)
        await asyncio.sleep(0)
        coordinators.resign(0)
        await coordinators.loaded()
        assert coordinators.counts()["active"] == 0
        coordinators.elect(0, 2)
        coordinators.resign(0)
        coordinators.elect(0, 3)
        await coordinators.loaded()
        assert coordinators.active[0].epoch == 3
        assert coordinators.submit(KEY, Get("a")) == 1

    run(scenario)


def test_a_marker_that_comes_during_a_load_counts_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        coordinators.submit(KEY, Add("a", producer_id=7))
        coordinators.resign(0)
        coordinators.elect(0, 1)
        await asyncio.sleep(0)
        broker.partition().append_marker(7, 0, 0, committed=True, now_ms=1)
        coordinators.replay_marker(0, 7, committed=True)
        await coordinators.loaded()
        assert coordinators.submit(KEY, Get("a")) == 1
        assert broker.shard.pending == {}

    run(scenario)


def test_a_log_that_cannot_be_read_is_a_failure_of_one_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, partitions=2)
        coordinators = broker.start()
        coordinators.active[0].submit(Add("a"))
        coordinators.resign(0)

        def fail(*_arguments: object) -> None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "offline")

        monkeypatch.setattr("ottla.runtime.coordinator_loading.read_slice", fail)
        coordinators.elect(0, 1)
        await coordinators.loaded()
        assert coordinators.counts() == {"active": 1, "loading": 0, "failed": 1}

    run(scenario)


def test_the_topic_comes_and_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, partitions=2)
        broker.table.host(broker.topic, broker.topic_config)
        coordinators = broker.coordinators
        coordinators.metadata_changed(broker.image, ImageDelta(topics_created=(broker.topic,)), NODE_ID)
        assert len(coordinators.active) == 2
        assert [len(shard.deltas) for shard in broker.shards] == [1, 1]
        coordinators.metadata_changed(broker.image, ImageDelta(), NODE_ID)
        assert [len(shard.deltas) for shard in broker.shards] == [1, 1]
        coordinators.metadata_changed(MetadataImage(), ImageDelta(topics_deleted=(broker.topic,)), NODE_ID)
        assert coordinators.active == {}
        assert code_of(lambda: coordinators.submit(KEY, Get("a"))) is ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_closing_lets_go_of_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        coordinators.submit(KEY, Add("a"))
        waiting = coordinators.submit(KEY, WaitFor("b"))
        await coordinators.close()
        with pytest.raises(ApiError):
            await waiting  # type: ignore[misc]
        coordinators.elect(0, 1)
        await coordinators.close()
        assert coordinators.active == {}

    run(scenario)


def test_then_maps_at_once_or_later() -> None:
    async def scenario() -> None:
        later: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        result: int | Awaitable[int] = later
        mapped = then(result, lambda value: value + 1)
        later.set_result(1)
        assert await mapped == 2  # type: ignore[misc]

    assert then(Count("a", 1), lambda count: count.value) == 1
    run(scenario)


def replicated(leader: int = NODE_ID, epoch: int = 0, partition_epoch: int = 0) -> PartitionImage:
    return PartitionImage(
        replicas=(NODE_ID, 2),
        isr=(NODE_ID, 2),
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=partition_epoch,
    )


def follower_has(broker: CountingBroker, offset: int) -> None:
    """Broker 2 has everything below `offset`; its registration is of no importance here."""
    broker.partition().follower_fetched(2, -1, offset, 0, broker.table.neighbours.now_ms())


def test_answers_wait_until_the_followers_have_what_they_rest_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.take(replicated())
        added = asyncio.ensure_future(awaited(broker.coordinators.submit(KEY, Add("a"))))
        seen = asyncio.ensure_future(awaited(broker.coordinators.submit(KEY, Get("a"))))
        follower_has(broker, 0)
        await asyncio.sleep(0)
        assert not added.done()
        assert not seen.done()
        follower_has(broker, 1)
        assert (await added, await seen) == (1, 1)
        assert broker.coordinators.submit(KEY, Get("a")) == 1

    run(scenario)


def test_who_waits_for_a_leader_that_is_none_any_more_hears_of_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.take(replicated())
        added = asyncio.ensure_future(awaited(broker.coordinators.submit(KEY, Add("a"))))
        await asyncio.sleep(0)
        broker.take(replicated(leader=2, epoch=1, partition_epoch=1))
        with pytest.raises(ApiError) as refused:
            await added
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert code_of(lambda: broker.coordinators.submit(KEY, Get("a"))) is ErrorCode.NOT_COORDINATOR
        assert await broker.coordinators.broadcast(lambda: Get("a")) == []

    run(scenario)


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_coordinator_that_comes_back_reads_its_log_anew(tmp_path: Path, is_seen: bool) -> None:
    """Also if the metadata that made another broker the leader came together with what took that back."""

    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.take(replicated())
        coordinators = broker.coordinators
        added = asyncio.ensure_future(awaited(coordinators.submit(KEY, Add("a"))))
        await asyncio.sleep(0)
        if is_seen:
            broker.take(replicated(leader=2, epoch=1, partition_epoch=1))
        broker.take(replicated(epoch=2, partition_epoch=2))
        with pytest.raises(ApiError):
            await added
        assert code_of(lambda: coordinators.submit(KEY, Get("a"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await coordinators.loaded()
        assert len(broker.shards) == 2
        seen = asyncio.ensure_future(awaited(coordinators.submit(KEY, Get("a"))))
        await asyncio.sleep(0)
        assert not seen.done()  # It is in the leader's log, and not yet committed.
        follower_has(broker, 1)
        assert await seen == 1
        assert coordinators.active[0].epoch == 2

    run(scenario)


def test_a_lone_replica_goes_on_in_a_new_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.start()
        broker.coordinators.submit(KEY, Add("a"))
        broker.take(PartitionImage(replicas=(NODE_ID,), isr=(NODE_ID,), leader=NODE_ID, leader_epoch=3))
        assert broker.coordinators.submit(KEY, Get("a")) == 1
        assert (len(broker.shards), broker.coordinators.active[0].epoch) == (1, 3)

    run(scenario)


def test_a_guard_falls_with_the_marker(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.start()
        check = broker.coordinators.guard(KEY, 7, 0)
        check()
        broker.partition().append_marker(7, 0, 0, committed=True, now_ms=1)
        assert code_of(check) is ErrorCode.INVALID_TXN_STATE
        check = broker.coordinators.guard(KEY, 7, 0)
        check()
        broker.partition().append_marker(7, 5, 0, committed=True, now_ms=1)
        assert code_of(broker.coordinators.guard(KEY, 7, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH
        broker.take(replicated(leader=2, epoch=1, partition_epoch=1))
        assert code_of(broker.coordinators.guard(KEY, 7, 0)) is ErrorCode.NOT_COORDINATOR

    run(scenario)


async def awaited(answer: int | Awaitable[int]) -> int:
    return answer if isinstance(answer, int) else await answer
