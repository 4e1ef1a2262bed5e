"""What is queued leaves whole and in order, whatever the socket takes at a time."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.chunks import Chunk, FileSlice, SendableFile
from ottla.server.output import (
    GATHERED_BYTES_MAX,
    STAGING_BYTES,
    TURN_BYTES_MAX,
    WARM_BYTES_MAX,
    FileEndedError,
    Flush,
    Output,
    chunks_bytes,
)
from ottla.server.platform import WOULD_WAIT, PortablePlatform, read_through
from ottla.server.transport import Transport

LOG = random.Random(4).randbytes(2_000_000)
MORE = 7


class LogFile:
    def fileno(self) -> int:
        raise AssertionError("there is no descriptor")

    def pread(self, size: int, position: int) -> bytes:
        return LOG[position : position + size]


class Sink:
    """A transport that takes as much as a list of numbers says, then everything."""

    def __init__(self, takes: list[int] | None = None) -> None:
        self.taken = bytearray()
        self.calls = 0
        self.held_back = False
        self._takes = takes or []

    def send(self, data: bytes | bytearray | memoryview, flags: int) -> int:
        self.calls += 1
        take = min(len(data), self._takes.pop(0)) if self._takes else len(data)
        if not take:
            raise BlockingIOError
        self.taken += data[:take]
        self.held_back = flags == MORE
        return take

    def send_file(self, file: SendableFile, position: int, length: int) -> int:
        data = file.pread(length, position)
        return self.send(data, 0) if data else 0

    def as_transport(self) -> Transport:
        return self  # type: ignore[return-value]


class FakePlatform(PortablePlatform):
    """Says that ranges are on disk, as often as it is told to."""

    send_more = MORE  # type: ignore[misc]

    def __init__(self, colds: list[bool] | None = None) -> None:
        self._colds = colds or []

    def is_resident(self, file: SendableFile, position: int, length: int) -> bool:
        return not (self._colds and self._colds.pop(0))

    def read_now(self, file: SendableFile, into: memoryview, position: int) -> int:
        return WOULD_WAIT if self._colds and self._colds.pop(0) else super().read_now(file, into, position)


def make_output(sink: Sink, colds: list[bool] | None = None) -> Output:
    return Output(sink.as_transport(), FakePlatform(colds), memoryview(bytearray(STAGING_BYTES)))


def flush_all(output: Output) -> None:
    """Act as a connection does until everything is gone."""
    for _ in range(100_000):
        outcome, sent = output.flush()
        assert sent <= TURN_BYTES_MAX + STAGING_BYTES
        if outcome is Flush.DONE:
            return
        if outcome is Flush.COLD:
            cold = output.cold()
            assert cold.length <= WARM_BYTES_MAX
            output.warmed(read_through(cold.file, cold.position, cold.length))
    raise AssertionError("the queue never got empty")


def content(chunk: Chunk) -> bytes:
    return LOG[chunk.position : chunk.position + chunk.length] if isinstance(chunk, FileSlice) else bytes(chunk)


MAKE: dict[str, Callable[[int], Chunk]] = {
    "bytes": lambda size: LOG[:size],
    "bytearray": lambda size: bytearray(LOG[:size]),
    "memoryview": lambda size: memoryview(LOG)[:size],
    "slice": lambda size: FileSlice(LogFile(), 12_345, size),
}
SIZES = (0, 1, 10, 1000, GATHERED_BYTES_MAX, GATHERED_BYTES_MAX + 1, 300_000)


@given(
    kinds=st.lists(st.tuples(st.sampled_from(sorted(MAKE)), st.sampled_from(SIZES)), max_size=20),
    takes=st.lists(st.sampled_from([0, 1, 100, 10_000, 100_000]), max_size=50),
    colds=st.lists(st.booleans(), max_size=30),
)
def test_everything_arrives_in_order(kinds: list[tuple[str, int]], takes: list[int], colds: list[bool]) -> None:
    chunks = [MAKE[kind](size) for kind, size in kinds]
    sink = Sink(takes)
    output = make_output(sink, colds)
    half = len(chunks) // 2
    output._push(chunks[:half])
    output.flush()
    output._push(chunks[half:])
    assert output.pending + len(sink.taken) == chunks_bytes(chunks)
    flush_all(output)
    assert bytes(sink.taken) == b"".join(map(content, chunks))
    assert output.pending == 0
    assert not sink.held_back


@given(
    answers=st.lists(
        st.lists(st.tuples(st.sampled_from(sorted(MAKE)), st.sampled_from(SIZES)), min_size=1, max_size=4), max_size=8
    ),
    takes=st.lists(st.sampled_from([0, 1, 100, 10_000, 100_000]), max_size=50),
    colds=st.lists(st.booleans(), max_size=30),
)
def test_answers_arrive_behind_their_sizes(
    answers: list[list[tuple[str, int]]], takes: list[int], colds: list[bool]
) -> None:
    sink = Sink(takes)
    output = make_output(sink, colds)
    expected = b""
    for kinds in answers:
        chunks = [MAKE[kind](size) for kind, size in kinds]
        body = b"".join(map(content, chunks))
        expected += len(body).to_bytes(4, "big") + body
        if output.pending:
            output.push_answer(chunks)
        else:
            output.send_short(chunks)
    flush_all(output)
    assert bytes(sink.taken) == expected


def test_short_pieces_leave_in_one_call() -> None:
    sink = Sink()
    output = make_output(sink)
    for number in range(50):
        output._push([b"header", FileSlice(LogFile(), number, 500)])
    assert output.flush() == (Flush.DONE, 50 * 506)
    assert sink.calls == 1


def test_who_wants_to_see_a_slice_is_shown_it_when_it_is_copied_whole() -> None:
    seen: list[bytes] = []
    records = FileSlice(LogFile(), 70, 5000, lambda shown, data: seen.append(bytes(data)))
    make_output(Sink()).send_short([b"header", records, b"end"])
    assert seen == [LOG[70:5070]]
    make_output(Sink(), [True]).send_short([b"header", records])
    make_output(Sink()).send_short([b"header", records._replace(length=GATHERED_BYTES_MAX)])
    assert len(seen) == 1


def test_a_header_is_held_back_for_the_slice_behind_it() -> None:
    sink = Sink()
    output = make_output(sink, [True])
    output._push([b"header", FileSlice(LogFile(), 0, 200_000)])
    assert output.flush() == (Flush.COLD, 6)
    assert sink.held_back


def test_one_turn_is_bounded() -> None:
    output = make_output(Sink())
    output._push([bytes(5 * TURN_BYTES_MAX)])
    assert output.flush() == (Flush.FULL, TURN_BYTES_MAX)


def test_a_range_that_was_warmed_is_sent_even_if_it_is_cold_again() -> None:
    sink = Sink()
    output = make_output(sink, [True] * 2)
    output._push([FileSlice(LogFile(), 0, 100_000)])
    assert output.flush()[0] is Flush.COLD
    output.warmed(100_000)
    assert output.flush() == (Flush.DONE, 100_000)


@pytest.mark.parametrize("length", [1000, 100_000])
def test_a_file_that_ends_early_is_an_error(length: int) -> None:
    output = make_output(Sink(), [True])
    output._push([FileSlice(LogFile(), len(LOG), length)])
    assert output.flush()[0] is Flush.COLD
    output.warmed(length)
    with pytest.raises(FileEndedError):
        output.flush()


def test_chunks_that_were_sent_are_let_go() -> None:
    """A consumer of a thousand partitions must not hold every file until the last byte."""
    output = make_output(Sink([GATHERED_BYTES_MAX] * 3))
    output._push([bytes(500) for _ in range(1000)])
    while output.flush()[0] is not Flush.DONE:
        assert len(output._chunks) <= 1000 - 64
