"""A shard that is loaded from its log is in the state in which it was."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.reading import read_slice
from ottla.log.scan import TornBatchError
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import CorruptLogError
from ottla.runtime.coordinator_loading import ShardLoading
from ottla.wire.batch import read_header
from ottla.wire.records import Record, build_batch
from tests.measured import least, thread_seconds
from tests.unit.runtime.counting import Add, Count, CountingBroker, CountingShard, decode

SMALL_SEGMENTS = TopicConfig(cleanup_compact=True, cleanup_delete=False, segment_bytes=400)


def loading_of(
    broker: CountingBroker, buffer_bytes: int = 1 << 20, replaceable: bytes | None = None
) -> ShardLoading[Count]:
    return ShardLoading(CountingShard(), broker.partition().log, decode, buffer_bytes, replaceable)


def load(
    broker: CountingBroker, buffer_bytes: int = 1 << 20, replaceable: bytes | None = None
) -> tuple[CountingShard, ShardLoading[Count]]:
    loading = loading_of(broker, buffer_bytes, replaceable)
    while not loading.is_over:
        loading.replay_slice()
    assert isinstance(loading._shard, CountingShard)
    return loading._shard, loading


def write(broker: CountingBroker, records: list[Record]) -> None:
    batch = memoryview(build_batch(records))
    broker.partition().append(batch, read_header(batch), 1)


steps = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("abc"), st.integers(1, 3), st.sampled_from([-1, -1, 5, 6])),
    st.tuples(st.just("marker"), st.just(""), st.just(0), st.sampled_from([5, 6]), st.booleans()),
)


@settings(max_examples=40, deadline=None)
@given(
    steps=st.lists(steps, max_size=30),
    buffer_bytes=st.sampled_from([1, 200, 1 << 20]),
    codec=st.integers(0, 4),
    replaceable=st.sampled_from([None, b"", b"a", b"ab"]),
)
def test_a_load_gives_the_state_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[Any, ...]],
    buffer_bytes: int,
    codec: int,
    replaceable: bytes | None,
) -> None:
    async def scenario() -> None:
        path = tmp_path_factory.mktemp("log")
        broker = CountingBroker(path, topic_config=SMALL_SEGMENTS, codec=codec)
        coordinators = broker.start()
        for kind, name, times, producer_id, *rest in steps:
            if kind == "add":
                coordinators.submit("k", Add(name, times, producer_id))
            else:
                broker.partition().append_marker(producer_id, 0, 0, committed=rest[0], now_ms=1)
                coordinators.replay_marker(0, producer_id, committed=rest[0])
        reopened = CountingBroker(path, topic_config=SMALL_SEGMENTS)
        reopened.start()
        shard, loading = load(reopened, buffer_bytes, replaceable)
        assert shard.counts == broker.shard.counts
        assert shard.pending == broker.shard.pending
        assert loading.skipped == loading.faults == 0
        await reopened.coordinators.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("buffer_bytes", [1, 100, 145, 150, 200, 225, 230])
@pytest.mark.parametrize("replaceable", [None, b""])
def test_slices_that_end_inside_a_batch_lose_nothing(
    tmp_path: Path, buffer_bytes: int, replaceable: bytes | None
) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        for number in range(40):
            coordinators.submit("k", Add(f"name-{number % 13}"))
        shard, loading = load(broker, buffer_bytes, replaceable)
        assert shard.counts == broker.shard.counts
        assert loading.records == 40

    asyncio.run(scenario())


def test_what_does_not_check_out_is_passed_over_and_counted(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.start().submit("k", Add("a"))
        write(broker, [Record(0, 1, b"a", b"no number"), Record(1, 1, None, b"1"), Record(2, 1, b"a", b"2")])
        write(broker, [Record(0, 1, b"b", b"666"), Record(1, 1, b"b", b"\xff"), Record(2, 1, b"\xff", b"1")])
        damaged = build_batch([Record(0, 1, b"a", b"9")])
        damaged[-2] ^= 1
        broker.partition().append(memoryview(damaged), read_header(damaged), 1)
        write(broker, [Record(0, 1, b"c", b"3")])
        shard, loading = load(broker)
        assert shard.counts == {"a": 2, "c": 3}
        assert (loading.records, loading.skipped, loading.faults) == (8, 4, 2)

    asyncio.run(scenario())


def test_an_emptied_end_of_a_log_ends_the_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.start().submit("k", Add("a", 3))
        empty = memoryview(build_batch([], last_offset_delta=4))
        broker.partition().log.append_as_follower(_placed(empty, 3))
        shard, loading = load(broker)
        assert loading.next_offset == 8
        assert shard.counts == {"a": 3}

    asyncio.run(scenario())


def _placed(batch: memoryview, offset: int) -> memoryview:
    batch[0:8] = offset.to_bytes(8)
    return batch


def test_segments_that_are_replaced_meanwhile_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        broker.start().submit("k", Add("a", 3))
        log = broker.partition().log
        calls = []

        def read_once_in_vain(*arguments: Any) -> Any:
            calls.append(1)
            if len(calls) == 1:
                log.segments = list(log.segments)
                raise FileNotFoundError("renamed away")
            return read_slice(*arguments)

        monkeypatch.setattr("ottla.runtime.coordinator_loading.read_slice", read_once_in_vain)
        assert load(broker)[0].counts == {"a": 3}
        monkeypatch.setattr("ottla.runtime.coordinator_loading.read_slice", _torn)
        with pytest.raises(CorruptLogError):
            loading_of(broker).replay_slice()

    asyncio.run(scenario())


def _torn(*_arguments: object) -> None:
    raise TornBatchError(0, "zeros")


def test_a_load_is_fast(tmp_path: Path) -> None:
    """A small version of the floor, a million records in 3 seconds, with room for a busy machine."""

    async def scenario() -> None:
        broker = CountingBroker(tmp_path)
        coordinators = broker.start()
        for number in range(40):
            coordinators.submit("k", Add(f"name {number}", 500))
        assert least(lambda: thread_seconds(lambda: load(broker)), 0.6) < 0.6

    asyncio.run(scenario())
