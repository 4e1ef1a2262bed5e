"""A request is known again by its bytes only where those leave no doubt about where its offset is."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.model.chunks import FileSlice
from ottla.wire.fetch import encode_response, parse
from ottla.wire.fetch_client import encode_request
from ottla.wire.fetch_repeated import RepeatedRequest, repeated_answer, repeated_request
from ottla.wire.fetch_types import (
    SESSION_SINCE,
    TOPIC_ID_SINCE,
    VERSION_MAX,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from ottla.wire.headers import request_header, request_header_fields

VERSIONS = range(SESSION_SINCE, VERSION_MAX + 1)
ROW = FetchPartition(3, 5, 1_000_000, -1, -1, 65_536)


def topic_of(version: int) -> str | UUID:
    return UUID(int=77) if version >= TOPIC_ID_SINCE else "orders" * 30


def frame_of(version: int, *rows: FetchPartition, correlation_id: int = 9, rack: str = "") -> memoryview:
    topics = [(topic_of(version), list(rows))]
    request = FetchRequest(-1, 500, 1, 1 << 20, 0, 0, -1, topics, [], rack, None, -1, {})
    return memoryview(request_header(1, version, correlation_id, "c") + encode_request(version, request))


def repeated(frame: memoryview) -> tuple[RepeatedRequest, FetchPartition] | None:
    _, version, _, _, position = request_header_fields(frame)
    return repeated_request(frame, position, version, parse(frame, position, version))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_next_request_is_read_like_the_first_one(version: int) -> None:
    found = repeated(frame_of(version, ROW))
    assert found is not None
    shape, asked = found
    assert asked.index == ROW.index
    again = frame_of(version, ROW._replace(fetch_offset=-7), correlation_id=-3)
    assert len(again) == shape.frame_bytes
    assert shape.unpack(again) == (shape.key_and_version, -3, shape.before, -7, shape.after)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_not_plain_is_not_remembered(version: int) -> None:
    assert repeated(frame_of(version, ROW, ROW._replace(index=4))) is None
    assert repeated(frame_of(version)) is None
    if version >= 11:
        assert repeated(frame_of(version, ROW, rack="r")) is None


def test_a_request_with_tagged_fields_is_not_remembered() -> None:
    frame = bytes(frame_of(12, ROW))
    assert frame.endswith(b"\0\0\1\1\0")
    for tagged in (
        b"\1\7\0\0\1\1\0",
        b"\0\1\7\0\1\1\0",
        b"\0\0\1\1\1\7\0",
    ):  # Of the partition, the topic, the request.
        assert repeated(memoryview(frame[:-5] + tagged)) is None


class Nothing:
    def fileno(self) -> int:
        raise AssertionError("nobody reads")

    def pread(self, size: int, position: int) -> bytes:
        raise AssertionError("nobody reads")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("aborted", [None, ()])
def test_the_next_answer_is_made_like_the_first_one(version: int, aborted: tuple[()] | None) -> None:
    def answer(correlation_id: int, high: int, stable: int, start: int, size: int) -> list[object]:
        data = PartitionData(3, 0, high, stable, start, aborted, -1, FileSlice(file, 70, size))
        return list(encode_response(version, correlation_id, 0, 0, [(topic_of(version), [data])]))

    file = Nothing()
    shape = repeated_answer(answer(1, 2, 3, 4, 50), version)  # type: ignore[arg-type]
    assert shape is not None
    for size in (60, 127, 128, 65_536, 1 << 22):
        head = shape.pack(-8, shape.before, 1 << 40, 1 << 39, 77, shape.after) + shape.encode_size(size)
        assert [head, FileSlice(file, 70, size), *shape.end] == answer(-8, 1 << 40, 1 << 39, 77, size)


def test_an_answer_without_records_is_no_pattern() -> None:
    data = PartitionData(3, 0, 2, 3, 4)
    assert repeated_answer(encode_response(12, 1, 0, 0, [("t", [data])]), 12) is None
