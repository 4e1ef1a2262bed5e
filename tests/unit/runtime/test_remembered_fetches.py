"""A connection remembers what it fetches: who waits is answered whole, who asks for less costs less, nothing stays."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.api import fetch
from ottla.api.context import Rememberer, RequestContext
from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.wire.batch import read_header
from ottla.wire.fetch_client import FetchResponse, encode_request, parse_response
from ottla.wire.fetch_types import FetchPartition, FetchRequest
from tests.unit.api.fetch_services import fetch_services, joined
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run

PARTITIONS = 40
VERSION = 12
WAIT_MS = 60_000


class Consumer:
    """A consumer at the end of many partitions, without a session."""

    def __init__(self, *, isolation: int = 0) -> None:
        self.hosted = Hosted(partitions=PARTITIONS)
        self.hosted.open_logs()
        self.services = fetch_services(self.hosted)
        self.fetches = self.services.fetches
        self.connection = cast(Rememberer, SimpleNamespace(remembered_fetch=None, repeated_fetch=None))
        self.isolation = isolation
        self.offsets = [0] * PARTITIONS

    def write(self, index: int) -> None:
        batch = batch_of(1)
        self.hosted.partition(index).append(memoryview(batch), read_header(batch), self.hosted.clock.ms)

    def ask(self, count: int = PARTITIONS, *, version: int = VERSION) -> Chunks | Deferred:
        wanted = [FetchPartition(index, 0, self.offsets[index], -1, -1, 1 << 20) for index in range(count)]
        request = FetchRequest(-1, WAIT_MS, 1, 1 << 20, self.isolation, 0, -1, [(TOPIC, wanted)], [], "", None, -1, {})
        body = memoryview(encode_request(version, request))
        context = RequestContext(self.services, 1, version, 7, "c", "h", "PLAINTEXT", connection=self.connection)
        answer = fetch.handle(context, body, 0)
        assert isinstance(answer, list | Deferred)
        return answer

    @property
    def watched(self) -> list[int]:
        return [index for index in range(PARTITIONS) if self.hosted.partition(index).watchers]


def read(answer: Chunks | Deferred) -> dict[int, int]:
    """The high watermark of each partition in the answer that has records; all partitions must be there."""
    assert not isinstance(answer, Deferred) or answer.done
    chunks = answer.chunks if isinstance(answer, Deferred) else answer
    parsed: FetchResponse = parse_response(joined(chunks), 5, VERSION)
    ((_, rows),) = parsed.topics
    assert [row.index for row in rows] == list(range(len(rows)))
    assert len(rows) == PARTITIONS
    return {row.index: row.high_watermark for row in rows if row.records}


async def turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_who_waits_is_told_of_all_partitions_when_one_has_something() -> None:
    async def scenario() -> None:
        consumer = Consumer()
        first = consumer.ask()
        assert isinstance(first, Deferred)
        consumer.write(7)
        await turns()
        assert read(first) == {7: 1}
        consumer.offsets[7] = 1
        second = consumer.ask()
        assert isinstance(second, Deferred)
        consumer.write(3)
        consumer.write(7)
        await turns()
        assert read(second) == {3: 1, 7: 2}
        assert consumer.fetches.remembered.partitions == PARTITIONS

    run(scenario)


def test_what_is_asked_for_again_is_given_again() -> None:
    async def scenario() -> None:
        await asyncio.sleep(0)
        consumer = Consumer()
        consumer.write(2)
        assert read(consumer.ask()) == read(consumer.ask()) == {2: 1}

    run(scenario)


def test_a_partition_that_is_left_out_is_forgotten() -> None:
    async def scenario() -> None:
        consumer = Consumer()
        waiting = consumer.ask()
        consumer.write(0)
        await turns()
        assert read(waiting) == {0: 1}
        consumer.offsets[0] = 1
        fewer = consumer.ask(PARTITIONS - 10)
        assert consumer.fetches.remembered.partitions == PARTITIONS - 10
        assert consumer.watched == list(range(PARTITIONS - 10))
        consumer.write(PARTITIONS - 1)
        await turns()
        assert isinstance(fewer, Deferred)
        assert not fewer.done
        fewer.cancel()

    run(scenario)


def test_a_second_request_does_not_disturb_one_that_waits() -> None:
    async def scenario() -> None:
        consumer = Consumer()
        waiting = consumer.ask()
        consumer.offsets[1] = 5  # Out of range, which is answered at once.
        assert isinstance(consumer.ask(), list)
        assert isinstance(waiting, Deferred)
        assert not waiting.done
        consumer.write(9)
        await turns()
        assert read(waiting) == {9: 1}

    run(scenario)


@pytest.mark.parametrize("change", ["version", "isolation"])
def test_a_request_of_another_kind_is_remembered_anew(change: str) -> None:
    async def scenario() -> None:
        await asyncio.sleep(0)
        consumer = Consumer()
        consumer.write(0)
        consumer.ask()
        before = consumer.connection.remembered_fetch
        if change == "version":
            consumer.ask(version=11)
        else:
            consumer.isolation = 1
            assert read(consumer.ask()) == {0: 1}
        assert consumer.connection.remembered_fetch not in (None, before)
        assert consumer.fetches.remembered.partitions == PARTITIONS

    run(scenario)


def test_nothing_is_left_when_the_connection_closes() -> None:
    async def scenario() -> None:
        await asyncio.sleep(0)
        consumer = Consumer()
        waiting = consumer.ask()
        assert isinstance(waiting, Deferred)
        waiting.cancel()
        assert consumer.connection.remembered_fetch is not None
        consumer.connection.remembered_fetch.close()
        assert consumer.watched == []
        assert consumer.fetches.remembered.partitions == 0
        assert not waiting.done

    run(scenario)


def test_when_too_much_is_remembered_others_are_served_as_before() -> None:
    async def scenario() -> None:
        consumer = Consumer()
        consumer.fetches.remembered.partitions_max = 0
        waiting = consumer.ask()
        assert consumer.connection.remembered_fetch is None
        consumer.write(4)
        await turns()
        assert read(waiting) == {4: 1}
        assert consumer.watched == []

    run(scenario)
