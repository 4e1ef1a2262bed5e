"""A coordinator at work: what is answered, when, and what becomes of those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.core.controller.image import PartitionImage
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode, StorageError
from tests.unit.runtime.counting import NODE_ID, Add, Break, Count, CountingBroker, Get, WaitFor

FLUSHED = TopicConfig(cleanup_compact=True, cleanup_delete=False, flush_messages=1)
KEY = "group"


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 10)

    asyncio.run(bounded())


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def code_of(call: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        call()
    return refused.value.code


async def awaited_code(answer: Any) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        await answer
    return refused.value.code


def test_an_answer_is_plain_when_everything_is_committed(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        assert coordinators.submit(KEY, Add("a", 3)) == 3
        assert coordinators.submit(KEY, Get("a")) == 3
        assert broker.shard.replayed == [Count("a", 1), Count("a", 2), Count("a", 3)]
        assert broker.partition().log.log_end_offset == 3

    run(scenario)


def test_a_refusal_writes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        assert code_of(lambda: coordinators.submit(KEY, Add("a", -1))) is ErrorCode.INVALID_REQUEST
        assert broker.partition().log_or_none is None

    run(scenario)


def test_a_fault_fails_its_request_and_the_shard_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        coordinators = CountingBroker(tmp_path).start()
        assert code_of(lambda: coordinators.submit(KEY, Break())) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert coordinators.submit(KEY, Add("a")) == 1
        # In the log, and passed over: as at the next load.
        assert code_of(lambda: coordinators.submit(KEY, Add("b", 666))) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert coordinators.submit(KEY, Get("b")) == 665

    run(scenario)


def test_a_ticket_may_be_answered_by_another_command(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        first, second = coordinators.submit(KEY, WaitFor("a")), coordinators.submit(KEY, WaitFor("a"))
        assert coordinators.active[0].open_tickets == 2
        assert coordinators.submit(KEY, Add("a")) == 1
        assert [await first, await second] == [1, 1]  # type: ignore[misc]
        assert coordinators.active[0].open_tickets == 0

    run(scenario)


def test_answers_wait_for_the_flush_in_their_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, topic_config=FLUSHED)
        coordinators = broker.start()
        order: list[str] = []
        answers = {
            "add": coordinators.submit(KEY, Add("a")),
            # Nothing to write, but what it says may still be taken back.
            "get": coordinators.submit(KEY, Get("a")),
            "again": coordinators.submit(KEY, Add("a")),
        }
        for name, answer in answers.items():
            assert isinstance(answer, asyncio.Future)
            answer.add_done_callback(lambda _, name=name: order.append(name))  # type: ignore[misc]
        assert broker.shard.counts == {"a": 2}
        assert broker.partition().high_watermark == 0
        assert [await answer for answer in answers.values()] == [1, 1, 2]  # type: ignore[misc]
        await turns()
        assert order == ["add", "get", "again"]
        assert broker.partition().high_watermark == 2
        assert broker.partition().log.recovery_point == 2

    run(scenario)


def test_who_waits_too_long_is_told(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, topic_config=FLUSHED, properties={"offsets.commit.timeout.ms": "5"})
        released = asyncio.Event()

        async def stuck(_partition: object) -> None:
            await released.wait()

        broker.coordinators._flushing = type("Stuck", (), {"flush": staticmethod(stuck)})()
        coordinators = broker.start()
        assert await awaited_code(coordinators.submit(KEY, Add("a"))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        late = coordinators.submit(KEY, Get("a"))
        broker.partition().advance(1)
        assert await late == 1  # type: ignore[misc]
        assert coordinators.submit(KEY, Get("a")) == 1
        released.set()

    run(scenario)


def test_what_cannot_be_written_is_not_replayed(tmp_path: Path) -> None:
    async def scenario() -> None:
        small = TopicConfig(cleanup_compact=True, max_message_bytes=100)
        broker = CountingBroker(tmp_path, topic_config=small)
        coordinators = broker.start()
        assert code_of(lambda: coordinators.submit(KEY, Add("a", 50))) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert coordinators.submit(KEY, Add("a", 50, keep=lambda code: code)) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert broker.shard.replayed == []
        assert coordinators.submit(KEY, Add("a")) == 1

    run(scenario)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_COORDINATOR),
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (StorageError("/nowhere", "broke"), ErrorCode.NOT_COORDINATOR),
        (ValueError("a fault"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_append_fails_all_its_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: ErrorCode
) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        waiting = coordinators.submit(KEY, WaitFor("a"))

        def fail(*_arguments: object) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("ottla.runtime.partition.Partition.append", fail)
            assert code_of(lambda: coordinators.submit(KEY, Add("a"))) is code
        assert await awaited_code(waiting) is code
        assert broker.shard.counts == {}
        assert coordinators.submit(KEY, Add("a")) == 1

    run(scenario)


def test_too_few_replicas_are_no_reason_to_write(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, topic_config=TopicConfig(cleanup_compact=True, min_insync_replicas=2))
        broker.take(PartitionImage(replicas=(NODE_ID, 2), isr=(NODE_ID,), leader=NODE_ID))
        coordinators = broker.coordinators
        assert code_of(lambda: coordinators.submit(KEY, Add("a"))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert broker.partition().log.log_end_offset == 0

    run(scenario)


def test_the_timer_ticks_when_something_is_due(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        answer = coordinators.submit(KEY, WaitFor("a", 5))
        broker.clock.ms += 5
        assert await answer == -1  # type: ignore[misc]
        assert broker.shard.counts == {"late a": 1}

    run(scenario)


def test_a_deadline_that_moves_back_costs_no_timer(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        coordinators.submit(KEY, WaitFor("a", 1000))
        timer = coordinators.active[0]._timer
        for _ in range(10):
            broker.clock.ms += 10
            coordinators.submit(KEY, WaitFor("a", 1000))
        assert coordinators.active[0]._timer is timer
        coordinators.submit(KEY, WaitFor("b", 10))
        assert coordinators.active[0]._timer is not timer

    run(scenario)


def test_a_fault_in_a_tick_does_not_spin(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        ticks, ticked = [], asyncio.Event()

        def fail() -> None:
            ticks.append(1)
            ticked.set()
            raise KeyError("a fault")

        broker.shard.on_tick = fail
        answer = coordinators.submit(KEY, WaitFor("a", 0))
        await ticked.wait()
        await turns(200)
        assert len(ticks) == 1
        coordinators.resign(0)
        assert await awaited_code(answer) is ErrorCode.NOT_COORDINATOR

    run(scenario)


def test_resigning_answers_every_open_ticket(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, topic_config=FLUSHED)
        coordinators = broker.start()
        waiting, adding = coordinators.submit(KEY, WaitFor("b")), coordinators.submit(KEY, Add("a"))
        coordinator = coordinators.active[0]
        coordinators.resign(0)
        assert await awaited_code(waiting) is ErrorCode.NOT_COORDINATOR
        assert await awaited_code(adding) is ErrorCode.NOT_COORDINATOR
        assert code_of(lambda: coordinators.submit(KEY, Get("a"))) is ErrorCode.NOT_COORDINATOR
        assert code_of(lambda: coordinator.submit(Get("a"))) is ErrorCode.NOT_COORDINATOR
        assert broker.partition().watchers is None
        await turns()

    run(scenario)


def test_a_deleted_topic_and_a_lost_log_end_the_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, partitions=2)
        coordinators = broker.start()
        for coordinator in coordinators.active.values():
            coordinator.submit(Add("a"))
        broker.table.directory_failed(StorageError(str(tmp_path / "__counts-0"), "broke"))
        broker.partition(0).log_or_none = None
        broker.partition(0).changed()
        await turns()
        assert coordinators.counts() == {"active": 1, "loading": 0, "failed": 1}
        waiting = coordinators.active[1].submit(WaitFor("b"))
        broker.table.drop(broker.topic.id)
        assert await awaited_code(waiting) is ErrorCode.NOT_COORDINATOR
        assert not coordinators.active

    run(scenario)


def test_records_of_a_transaction_count_with_its_marker(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        for _ in range(2):
            # The same producer and epoch again: the coordinator's own batches are never taken for repetitions.
            coordinators.submit(KEY, Add("a", producer_id=7))
        coordinators.submit(KEY, Add("b", producer_id=8))
        assert broker.partition().log.log_end_offset == 3
        assert broker.partition().last_stable_offset == 0
        assert coordinators.submit(KEY, Get("a")) == 0
        coordinators.replay_marker(0, 7, committed=True)
        coordinators.replay_marker(0, 8, committed=False)
        coordinators.replay_marker(99, 8, committed=False)
        assert [coordinators.submit(KEY, Get(name)) for name in "ab"] == [1, 0]

    run(scenario)
