"""A follower's reader of answers sees what the general one sees."""

from __future__ import annotations

from typing import cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.chunks import Chunks, FileSlice, SendableFile
from ottla.model.errors import MalformedMessageError
from ottla.wire import fetch
from ottla.wire.fetch_client import (
    ReplicaRow,
    encode_replica_request,
    encode_request,
    fetch_request,
    parse_replica_response,
    parse_response,
)
from ottla.wire.fetch_types import EpochEndOffset, FetchPartition, PartitionData
from ottla.wire.fields import CurrentLeader, TopicKey
from tests.unit.wire.kio_oracle import error_codes, int32s, int64s, topic_ids

HEADER_BYTES = 5
"""Correlation id and no tagged fields."""

rows = st.builds(
    PartitionData,
    index=int32s,
    error_code=error_codes,
    high_watermark=int64s,
    last_stable_offset=int64s,
    log_start_offset=int64s,
    aborted=st.none() | st.lists(st.tuples(int64s, int64s), max_size=2),
    preferred_read_replica=int32s,
    records=st.binary(max_size=200),
    diverging_epoch=st.none() | st.builds(EpochEndOffset, st.integers(0, 9), int64s),
    current_leader=st.none() | st.builds(CurrentLeader, st.integers(0, 9), int32s),
    snapshot_id=st.none(),
)
topics = st.lists(st.tuples(topic_ids, st.lists(rows, max_size=4)), max_size=3)


def joined(chunks: Chunks) -> memoryview:
    assert not any(isinstance(chunk, FileSlice) for chunk in chunks)
    return memoryview(b"".join(bytes(chunk) for chunk in chunks))  # type: ignore[arg-type]


@given(topics=topics, version=st.integers(13, 18), error=error_codes, session_id=int32s)
def test_a_follower_sees_what_a_consumer_sees(
    topics: list[tuple[TopicKey, list[PartitionData]]], version: int, error: int, session_id: int
) -> None:
    frame = joined(fetch.encode_response(version, 1, error, session_id, topics, throttle_ms=7))
    expected = parse_response(frame, HEADER_BYTES, version)
    answer = parse_replica_response(frame[HEADER_BYTES:], version)
    assert answer[:3] == (7, error, session_id) == expected[:3]
    assert answer.rows == [
        ReplicaRow(
            topic,
            data.index,
            data.error_code,
            data.high_watermark,
            data.log_start_offset,
            memoryview(bytes(data.records or b"")),  # type: ignore[arg-type]
            data.diverging_epoch,
        )
        for topic, partitions in expected.topics
        for data in partitions
    ]


@given(topics=topics, cut=st.integers(0, 10_000))
def test_an_answer_that_ends_early_is_refused(topics: list[tuple[TopicKey, list[PartitionData]]], cut: int) -> None:
    frame = joined(fetch.encode_response(17, 1, 0, 5, topics))[HEADER_BYTES:-1]  # Without the last tagged fields.
    if topics and cut < len(frame):
        with pytest.raises(MalformedMessageError):
            parse_replica_response(frame[:cut], 17)


def test_a_long_list_of_aborted_transactions_is_stepped_over() -> None:
    data = PartitionData(1, aborted=[(n, n) for n in range(300)], records=b"abc")
    frame = joined(fetch.encode_response(17, 1, 0, 5, [(UUID(int=9), [data, data])]))
    assert [bytes(row.records) for row in parse_replica_response(frame[HEADER_BYTES:], 17).rows] == [b"abc", b"abc"]


def test_a_follower_says_who_it_is_in_every_version_that_it_speaks() -> None:
    asked = [(UUID(int=9), [FetchPartition(3, 7, 100, 6, 50, 1 << 20)])]
    request = fetch_request(list(asked), replica_id=4, replica_epoch=99, session_id=5, session_epoch=6)
    for version in range(15, 19):
        seen = fetch.parse(memoryview(encode_request(version, request)), 0, version)
        assert (seen.replica_id, seen.replica_epoch, seen.session_id, seen.session_epoch) == (4, 99, 5, 6)
        assert seen.topics == asked


@given(
    st.lists(st.tuples(st.tuples(topic_ids, int32s), st.tuples(int32s, int64s, int32s, int64s)), max_size=5),
    st.integers(15, 18),
)
def test_the_short_way_to_a_followers_request_gives_the_same_bytes(
    rows: list[tuple[tuple[UUID, int], tuple[int, int, int, int]]], version: int
) -> None:
    topics: dict[TopicKey, list[FetchPartition]] = {}
    for (topic, index), (leader_epoch, offset, last_epoch, start) in rows:
        topics.setdefault(topic, []).append(FetchPartition(index, leader_epoch, offset, last_epoch, start, 77))
    whole = fetch_request(
        list(topics.items()), max_wait_ms=1, min_bytes=2, max_bytes=3, session_id=5, session_epoch=6, replica_id=4,
        replica_epoch=99,
    )  # fmt: skip
    short = encode_replica_request(
        rows, max_wait_ms=1, min_bytes=2, max_bytes=3, partition_bytes=77, session_id=5, session_epoch=6, replica_id=4,
        replica_epoch=99,
    )  # fmt: skip
    assert short == encode_request(version, whole)


@given(topic_ids, int32s, st.tuples(int32s, int64s, int32s, int64s), st.integers(15, 18), st.data())
def test_the_short_way_of_a_request_about_one_partition_is_taken_for_no_other(
    topic: UUID, index: int, asked: tuple[int, int, int, int], version: int, data: st.DataObject
) -> None:
    frame = bytearray(
        encode_replica_request(
            [((topic, index), asked)], max_wait_ms=1, min_bytes=2, max_bytes=3, partition_bytes=77, session_id=5,
            session_epoch=6, replica_id=4, replica_epoch=99,
        )
    )  # fmt: skip
    short = fetch._parse_one_followed(memoryview(frame), 0)
    assert short is not None
    assert short == fetch._parse_flexible(memoryview(frame), 0, version)
    # Whatever byte is another one: both ways say the same, or the short one leaves it to the long one.
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    short = fetch._parse_one_followed(memoryview(frame), 0)
    assert short is None or short == fetch._parse_flexible(memoryview(frame), 0, version)


@given(topic_ids, rows, st.integers(13, 18), st.binary(min_size=1, max_size=300))
def test_the_short_way_of_an_answer_with_one_slice_gives_the_same_bytes(
    topic: UUID, row: PartitionData, version: int, records: bytes
) -> None:
    file = cast(SendableFile, None)
    chunks = fetch.encode_response(
        version, 1, 0, 5, [(topic, [row._replace(records=FileSlice(file, 7, len(records)))])], 7
    )
    whole = joined(fetch.encode_response(version, 1, 0, 5, [(topic, [row._replace(records=records)])], 7))
    assert sum(isinstance(chunk, FileSlice) for chunk in chunks) == 1
    assert b"".join(records if isinstance(chunk, FileSlice) else bytes(chunk) for chunk in chunks) == bytes(whole)
