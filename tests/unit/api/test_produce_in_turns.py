"""A request of very many partitions: others have their turn, and it is served as if it were short."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api import produce
from ottla.api.context import RequestContext
from ottla.api.deferred import Alone
from ottla.api.produce_ahead import ProduceGroup
from ottla.model.errors import ErrorCode, MalformedMessageError
from ottla.runtime import appending
from ottla.runtime.partition import Partition
from ottla.wire import produce_lead
from ottla.wire.batch import BatchHeader
from ottla.wire.fields import TopicKey
from ottla.wire.produce import ProducedPartition
from ottla.wire.produce_client import encode_request, parse_response
from tests.unit.api import replica_services
from tests.unit.api.fetch_services import joined
from tests.unit.api.produce_groups import Sender
from tests.unit.api.produce_services import Broker
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run, transactional
from tests.unit.runtime.replicas import Cluster

COUNT, INLINE, PER_TURN = 60, 20, 8
VERSION, HEADER_BYTES = 12, 5
Topics = Sequence[tuple[TopicKey, Sequence[tuple[int, bytearray]]]]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "PARTITIONS_INLINE_MAX", INLINE)
    monkeypatch.setattr(produce, "PARTITIONS_PER_TURN", PER_TURN)


def opened(partitions: int = COUNT) -> Hosted:
    hosted = Hosted(partitions=partitions)
    hosted.open_logs()
    return hosted


def context(hosted: Hosted) -> RequestContext:
    services = replica_services.services(cast(Cluster, SimpleNamespace(replicas={1: hosted})))
    return RequestContext(services, 0, VERSION, 1, "c", "10.0.0.1", "PLAINTEXT")


def ask(ctx: RequestContext, topics: Topics, *, acks: int = 1, transactional_id: str | None = None) -> Any:
    frame = bytearray(encode_request(VERSION, topics, acks=acks, transactional_id=transactional_id))
    answer = produce.handle(ctx, memoryview(frame), 0)
    frame[:] = bytes(len(frame))  # The receive buffer has other things in it by then.
    return answer


def every(count: int = COUNT) -> Topics:
    return [(TOPIC, [(index, batch_of()) for index in range(count)])]


def rows(chunks: Any) -> list[tuple[TopicKey, list[ProducedPartition]]]:
    return parse_response(joined(chunks), HEADER_BYTES, VERSION).topics


def written(hosted: Hosted) -> int:
    return sum(partition.log.log_end_offset for partition in hosted.table)


async def most_in_a_turn(hosted: Hosted, asking: asyncio.Future[Any]) -> int:
    """How many batches were appended without a turn for others in between."""
    most, before = 0, written(hosted)
    while not asking.done():
        await asyncio.sleep(0)
        most, before = max(most, written(hosted) - before), written(hosted)
    return most


def repeated(cluster: Cluster, *, acks: int) -> asyncio.Future[Any]:
    """One partition again and again: a cluster of a test has no more."""
    ctx = replica_services.context(replica_services.services(cluster), 0, VERSION)
    asking: Alone = ask(ctx, [(TOPIC, [(0, batch_of()) for _ in range(COUNT)])], acks=acks)
    return asyncio.ensure_future(asking)


async def stored(cluster: Cluster, count: int) -> int:
    """Return when so many batches are in the leader's log, with how many there are."""
    log = cluster.leader.log
    for _ in range(COUNT):
        if log.log_end_offset >= count:
            break
        await asyncio.sleep(0)
    return log.log_end_offset


def test_others_have_their_turn_while_a_producer_writes_to_very_many_partitions() -> None:
    async def scenario() -> None:
        hosted = opened()
        answer = ask(context(hosted), every())
        assert isinstance(answer, Alone)  # Or requests behind it would overtake it.
        asking = asyncio.ensure_future(answer)
        assert 0 < await most_in_a_turn(hosted, asking) <= PER_TURN
        ((topic, found),) = rows(asking.result())
        assert topic == TOPIC
        assert [(row.index, row.error_code, row.base_offset) for row in found] == [(n, 0, 0) for n in range(COUNT)]

    run(scenario)


def test_batches_of_many_bytes_are_fewer_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(produce, "BYTES_PER_TURN", 2 * len(batch_of()))
        hosted = opened()
        asking = asyncio.ensure_future(ask(context(hosted), every()))
        assert await most_in_a_turn(hosted, asking) == 2

    run(scenario)


def test_topics_of_which_no_partition_is_named_take_their_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    in_a_turn: list[int] = []
    append_all = produce._append_all

    def counted(ctx: RequestContext, request: Any, topics: Topics, written: Any) -> None:
        in_a_turn.append(len(topics))
        append_all(ctx, request, cast(Any, topics), written)

    async def scenario() -> None:
        monkeypatch.setattr(produce, "_append_all", counted)
        topics: Topics = [(f"t{number}", []) for number in range(COUNT)]
        assert rows(await ask(context(opened()), topics)) == topics
        assert sum(in_a_turn) == COUNT
        assert max(in_a_turn) <= PER_TURN

    run(scenario)


def test_a_request_of_some_partitions_is_served_at_once() -> None:
    async def scenario() -> None:
        assert isinstance(ask(context(opened()), every(INLINE - 3)), list)

    run(scenario)


def test_topics_are_answered_as_they_were_asked_for() -> None:
    async def scenario() -> None:
        hosted = opened()
        parts = [(n, batch_of()) for n in range(PER_TURN - 1)]
        topics = [(TOPIC, parts), ("gone", parts), (TOPIC, [*parts, *parts, (COUNT, batch_of())]), ("none", [])]
        found = rows(await ask(context(hosted), topics))
        assert [(topic, [row.index for row in some]) for topic, some in found] == [
            (topic, [index for index, _ in some]) for topic, some in topics
        ]
        codes = [{row.error_code for row in some} for _, some in found]
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [{0}, {unknown}, {0, unknown}, set()]
        assert [row.base_offset for row in found[2][1]] == [1] * len(parts) + [2] * len(parts) + [-1]

    run(scenario)


def test_acks_all_waits_for_the_followers_of_what_was_written_in_any_turn() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        asking = repeated(cluster, acks=-1)
        await stored(cluster, COUNT)
        cluster.replicate(2)
        cluster.replicate(2)
        cluster.replicate(3)
        await asyncio.sleep(0)
        assert not asking.done()
        cluster.replicate(3)
        ((_, found),) = rows(await asking)
        assert [(row.error_code, row.base_offset) for row in found] == [(0, offset) for offset in range(COUNT)]

    run(scenario)


def test_a_broker_that_leads_no_more_says_so_of_what_it_has_yet_to_write() -> None:
    async def scenario() -> None:
        cluster = Cluster()
        asking = repeated(cluster, acks=1)
        first = await stored(cluster, 1)
        cluster.change(leader=2)
        cluster.publish()
        ((_, found),) = rows(await asking)
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [row.error_code for row in found] == [0] * first + [refused] * (COUNT - first)
        assert cluster.partition(1).log.log_end_offset == first

    run(scenario)


def test_the_partitions_of_every_turn_are_part_of_the_transaction() -> None:
    async def scenario() -> None:
        asked: list[int] = []

        def verify(name: str, producer_id: int, epoch: int, partitions: Any, *, add: bool) -> None:
            asked.extend(partition.partition for partition in partitions)

        ctx = context(opened())
        ctx.services.transactions = cast(Any, SimpleNamespace(verify=verify))
        topics = [(TOPIC, [(index, transactional(7, 0)) for index in range(COUNT)])]
        ((_, found),) = rows(await ask(ctx, topics, transactional_id="t"))
        assert {row.error_code for row in found} == {0}
        assert asked == list(range(COUNT))

    run(scenario)


def test_a_request_that_waits_for_followers_is_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Frame(bytearray):
        """One that may be referred to weakly."""

    made: list[weakref.ref[Frame]] = []

    def make(frame: memoryview) -> Frame:
        copy = Frame(frame)
        made.append(weakref.ref(copy))
        return copy

    async def scenario() -> None:
        monkeypatch.setattr(produce, "bytearray", make, raising=False)
        cluster = Cluster()
        asking = repeated(cluster, acks=-1)
        assert await stored(cluster, COUNT) == COUNT
        for _ in range(3):
            await asyncio.sleep(0)
        gc.collect()
        assert not asking.done()
        assert [reference() for reference in made] == [None]
        cluster.catch_up()
        await asking

    run(scenario)


def test_requests_that_wait_for_their_turn_hold_a_bounded_amount_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        ctx = context(opened())
        size = len(encode_request(VERSION, every(), acks=1))
        monkeypatch.setattr(appending, "WAITING_BYTES_MAX", size)
        first, second = ask(ctx, every()), ask(ctx, every())
        assert isinstance(second, list)
        assert {row.error_code for row in rows(second)[0][1]} == {ErrorCode.REQUEST_TIMED_OUT}
        assert {row.error_code for row in rows(await first)[0][1]} == {0}
        assert ctx.services.appender.hold(size)  # All of the room is there again.

    run(scenario)


def test_a_request_that_is_none_is_not_answered() -> None:
    async def scenario() -> None:
        ctx = context(opened())
        frame = bytearray(encode_request(VERSION, every(), acks=1))[:-1]
        with pytest.raises(MalformedMessageError):
            await cast(Alone, produce.handle(ctx, memoryview(frame), 0))
        assert ctx.services.appender.hold(appending.WAITING_BYTES_MAX)

    run(scenario)


def test_what_was_written_ahead_is_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that could not be written ahead makes the whole request be served, and that at once."""
    append_next = Partition.append_next

    def all_but_one(partition: Partition, batch: memoryview, header: BatchHeader) -> int | None:
        return None if partition.index == COUNT - 1 else append_next(partition, batch, header)

    async def scenario() -> None:
        broker = Broker(Hosted(partitions=COUNT))
        sender = Sender(broker.services, ProduceGroup)
        monkeypatch.setattr(produce_lead, "PARTITIONS_INLINE_MAX", COUNT + 1)
        monkeypatch.setattr(Partition, "append_next", all_but_one)
        sender.receive([sender.frame([(index, batch_of()) for index in range(COUNT)], version=VERSION)])
        assert sender.direct == 0
        (answer,) = await sender.settled()
        assert {row.error_code for row in rows([answer])[0][1]} == {0}
        assert [broker.offsets(index) for index in range(COUNT)] == [[0]] * COUNT

    run(scenario)
