"""A fetch that is known by its bytes is answered as one that is parsed, whatever has become of the partition."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from ottla.api import fetch
from ottla.api.context import Rememberer, RequestContext
from ottla.api.deferred import Deferred
from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.model.chunks import Chunks, FileSlice
from ottla.model.configs.resolve import TopicConfig
from ottla.runtime.repeated_fetches import MISSES_MAX
from ottla.wire.batch import iterate, read_header
from ottla.wire.fetch_client import encode_request
from ottla.wire.fetch_types import TOPIC_ID_SINCE, FetchPartition, FetchRequest
from ottla.wire.headers import request_header, request_header_fields
from tests.unit.api.fetch_services import fetch_services, joined
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import NODE_ID, TOPIC, Hosted, run


class Reader:
    """A consumer of one partition at a time, without a session."""

    def __init__(self, *, version: int = 12, isolation: int = 0, bytes_max: int = 4000) -> None:
        self.hosted = Hosted(partitions=2)
        self.services = fetch_services(self.hosted)
        self.connection = cast(Rememberer, SimpleNamespace(remembered_fetch=None, repeated_fetch=None))
        self.version, self.isolation, self.bytes_max = version, isolation, bytes_max
        self.correlation_id = 0
        self.wait_ms = 0
        self.bytes_min = 1

    def write(self, value_bytes: int = 500, index: int = 0) -> None:
        batch = batch_of(2, value=bytes(value_bytes))
        self.hosted.partition(index).append(memoryview(batch), read_header(batch), self.hosted.clock.ms)

    def frame(self, offset: int, index: int = 0, epoch: int = -1) -> memoryview:
        self.correlation_id += 1
        topic = self.hosted.table.hosted(TOPIC, 0).topic_id if self.version >= TOPIC_ID_SINCE else TOPIC
        wanted = [FetchPartition(index, epoch, offset, -1, -1, self.bytes_max)]
        request = FetchRequest(
            -1, self.wait_ms, self.bytes_min, 1 << 20, self.isolation, 0, -1, [(topic, wanted)], [], "", None, -1, {}
        )
        head = request_header(1, self.version, self.correlation_id, "c")
        return memoryview(head + encode_request(self.version, request))

    def repeated(self, frame: memoryview) -> Chunks | None:
        """What is answered without parsing the request."""
        known = self.connection.repeated_fetch
        return None if known is None else known.answer(frame, self.services.config)

    def plain(self, frame: memoryview, connection: Rememberer | None = None) -> Chunks | Deferred:
        _, version, correlation_id, _, position = request_header_fields(frame)
        context = RequestContext(
            self.services, 1, version, correlation_id, "c", "h", "PLAINTEXT", connection=connection
        )
        answer = fetch.handle(context, frame, position)
        assert isinstance(answer, list | Deferred)
        return answer

    def expect_again(self, offset: int = 0, **kwargs: int) -> None:
        """Ask as a client does for the first time."""
        self.plain(self.frame(offset, **kwargs), self.connection)
        assert self.connection.repeated_fetch is not None

    def elect(self, leader: int, epoch: int) -> None:
        topic_id = self.hosted.table.hosted(TOPIC, 0).topic_id
        state = PartitionImage(replicas=(NODE_ID, NODE_ID + 1), isr=(NODE_ID,), leader=leader, leader_epoch=epoch)
        self.hosted.table.host(TopicImage(TOPIC, topic_id, (state, state)), TopicConfig())


def show(chunks: Chunks) -> int:
    """Do as a connection does that copies the records; returns the offset after them."""
    records = chunks[1]
    assert isinstance(records, FileSlice)
    data = bytearray(records.file.pread(records.length, records.position))
    if records.shown is not None:
        records.shown(records, memoryview(data))
    return max(header.last_offset + 1 for _, header in iterate(data))


def counters(reader: Reader) -> tuple[int, int]:
    counted = reader.hosted.partition().counters
    return counted.fetch_requests, counted.bytes_out


@pytest.mark.parametrize("version", [7, 9, 11, 12, 13, 15, 16, 18])
@pytest.mark.parametrize("isolation", [0, 1])
def test_a_partition_is_read_to_its_end_as_if_each_request_were_the_first(version: int, isolation: int) -> None:
    async def scenario() -> None:
        reader = Reader(version=version, isolation=isolation)
        for number in range(200):
            reader.write(300 + number)
        reader.expect_again()
        offset = asked = 0
        while offset < 400:
            frame = reader.frame(offset)
            before = counters(reader)
            answer = reader.repeated(frame)
            between = counters(reader)
            plain = reader.plain(frame)
            after = counters(reader)
            assert answer is not None
            assert isinstance(plain, list)
            assert joined(answer) == joined(plain)
            assert [after[i] - between[i] for i in (0, 1)] == [between[i] - before[i] for i in (0, 1)]
            offset, asked = show(answer), asked + 1
        assert asked > 20
        assert reader.repeated(reader.frame(offset)) is None

    run(scenario)


def test_what_is_answered_is_what_the_ordinary_way_answers() -> None:
    """Transactions come and go, records are deleted, leaders change; offsets are any."""
    answered = 0

    async def scenario(seed: int) -> None:
        nonlocal answered
        rng = random.Random(seed)
        reader = Reader(isolation=rng.randint(0, 1), bytes_max=rng.choice([100, 1500, 100_000]))
        log = reader.hosted.partition().log
        sequence = offset = epoch = 0
        for _ in range(150):
            action = rng.random()
            leads = reader.hosted.table.hosted(TOPIC, 0).leads
            if action < 0.03:
                epoch += 1
                reader.elect(rng.choice([NODE_ID, NODE_ID, NODE_ID + 1]), epoch)
            elif action < 0.3 and leads:
                reader.write(rng.randint(0, 900))
            elif action < 0.4 and leads:
                reader.hosted.write(5, sequence)
                sequence += 1
            elif action < 0.44 and leads and sequence:
                reader.hosted.end(5, committed=rng.random() < 0.5)
            elif action < 0.46 and leads:
                log.delete_records_before(rng.randint(log.log_start_offset, reader.hosted.partition().high_watermark))
            else:
                frame = reader.frame(offset if rng.random() < 0.9 else rng.randint(0, log.log_end_offset + 1))
                answer, plain = reader.repeated(frame), reader.plain(frame, reader.connection)
                if answer is not None:
                    assert isinstance(plain, list)
                    assert joined(answer) == joined(plain)
                    answered += 1
                    offset = max(offset, show(answer)) if rng.random() < 0.9 else 0

    for seed in range(30):
        run(partial(scenario, seed))
    assert answered > 100


def test_a_new_config_counts_from_the_next_request_on() -> None:
    async def scenario() -> None:
        reader = Reader()
        reader.write()
        reader.expect_again()
        assert reader.repeated(reader.frame(0)) is not None
        reader.services.config = replace(reader.services.config)
        assert reader.repeated(reader.frame(0)) is None

    run(scenario)


def test_another_epoch_or_partition_goes_the_ordinary_way() -> None:
    async def scenario() -> None:
        reader = Reader()
        reader.elect(NODE_ID, 4)
        for index in (0, 1):
            reader.write(index=index)
        reader.hosted.partition(0).high_watermark = reader.hosted.partition(1).high_watermark = 2
        reader.expect_again(epoch=4)
        assert reader.repeated(reader.frame(0, epoch=4)) is not None
        assert reader.repeated(reader.frame(0, epoch=3)) is None
        assert reader.repeated(reader.frame(0, index=1, epoch=4)) is None
        reader.elect(NODE_ID, 5)
        assert reader.repeated(reader.frame(0, epoch=4)) is None

    run(scenario)


def test_a_partition_that_went_elsewhere_is_not_read() -> None:
    async def scenario() -> None:
        reader = Reader()
        reader.write()
        reader.expect_again()
        assert reader.repeated(reader.frame(0)) is not None
        reader.elect(NODE_ID + 1, 1)
        assert reader.repeated(reader.frame(0)) is None

    run(scenario)


def test_who_finds_less_than_it_wants_waits() -> None:
    async def scenario() -> None:
        reader = Reader()
        reader.wait_ms = 60_000
        reader.write()
        reader.expect_again()
        frame = reader.frame(2)
        assert reader.repeated(frame) is None
        waiting = reader.plain(frame, reader.connection)
        assert isinstance(waiting, Deferred)
        waiting.cancel()

    run(scenario)


def test_who_turns_to_another_partition_is_followed_after_a_while() -> None:
    async def scenario() -> None:
        reader = Reader()
        for index in (0, 1):
            reader.write(index=index)
        reader.expect_again()
        for _ in range(MISSES_MAX):
            reader.expect_again(index=1)
            assert reader.repeated(reader.frame(0, index=1)) is None
        reader.expect_again(index=1)
        assert reader.repeated(reader.frame(0, index=1)) is not None
        assert reader.repeated(reader.frame(0)) is None

    run(scenario)


@pytest.mark.parametrize(("wait_ms", "is_answered"), [(500, False), (0, True)])
def test_who_wants_to_wait_for_more_than_there_is_waits(wait_ms: int, is_answered: bool) -> None:
    async def scenario() -> None:
        reader = Reader()
        reader.wait_ms, reader.bytes_min = wait_ms, 2000
        for _ in range(6):
            reader.write(500)
        reader.expect_again()
        answer, waiting = reader.repeated(reader.frame(10)), reader.plain(reader.frame(10))
        assert (answer is not None) == isinstance(waiting, list) == is_answered
        if isinstance(waiting, Deferred):
            waiting.cancel()

    run(scenario)
