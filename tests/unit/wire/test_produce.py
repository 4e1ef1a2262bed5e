"""Producers of every version are understood and answered, and no bytes from outside do harm."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.errors import MalformedMessageError
from ottla.wire import produce, produce_client
from ottla.wire.fields import PARTITIONS_PER_REQUEST_MAX, CurrentLeader, NodeEndpoint, TopicKey
from ottla.wire.produce import ProducedPartition, ProduceRequest
from ottla.wire.varint import unsigned
from tests.unit.wire.damage import damage
from tests.unit.wire.kio_oracle import (
    blobs,
    durations,
    error_codes,
    int16s,
    int32s,
    int64s,
    kio_bytes,
    names,
    times,
    topic_ids,
)

VERSIONS = range(produce.VERSION_MIN, produce.VERSION_MAX + 1)
HEADER = b"some header"
TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")

leaders = st.builds(CurrentLeader, st.integers(0, 1000), int32s)
endpoints = st.builds(NodeEndpoint, int32s, names, int32s, st.none() | names)
produced = st.builds(
    ProducedPartition,
    index=int32s,
    error_code=st.just(0) | error_codes,
    base_offset=int64s,
    log_append_time_ms=times,
    log_start_offset=int64s,
    record_errors=st.just([]) | st.lists(st.tuples(int32s, st.none() | names), max_size=2),
    error_message=st.none() | names,
    current_leader=st.none() | leaders,
)


def topics_of(version: int, partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[TopicKey, list[Any]]]]:
    keys: st.SearchStrategy[TopicKey] = topic_ids if version >= produce.TOPIC_ID_SINCE else names
    return st.lists(st.tuples(keys, st.lists(partitions, max_size=3)), max_size=3)


def named(version: int, topic: TopicKey) -> dict[str, TopicKey]:
    return {"topic_id" if version >= produce.TOPIC_ID_SINCE else "name": topic}


def request_values(version: int, request: ProduceRequest) -> dict[str, Any]:
    return {
        "transactional_id": request.transactional_id,
        "acks": request.acks,
        "timeout": request.timeout_ms,
        "topic_data": [
            named(version, topic)
            | {"partition_data": [{"index": index, "records": records} for index, records in partitions]}
            for topic, partitions in request.topics
        ],
    }


def partition_values(partition: ProducedPartition) -> dict[str, Any]:
    values = {
        "index": partition.index,
        "error_code": partition.error_code,
        "base_offset": partition.base_offset,
        "log_append_time": partition.log_append_time_ms,
        "log_start_offset": partition.log_start_offset,
        "record_errors": [
            {"batch_index": index, "batch_index_error_message": message} for index, message in partition.record_errors
        ],
        "error_message": partition.error_message,
    }
    if partition.current_leader is not None:
        values["current_leader"] = partition.current_leader._asdict()
    return values


def seen_by(version: int, partition: ProducedPartition) -> ProducedPartition:
    """What is left of an answer in a version that lacks some of its fields."""
    if version < produce.LOG_START_OFFSET_SINCE:
        partition = partition._replace(log_start_offset=-1)
    if version < produce.RECORD_ERRORS_SINCE:
        partition = partition._replace(record_errors=(), error_message=None)
    if version < produce.CURRENT_LEADER_SINCE:
        partition = partition._replace(current_leader=None)
    return partition._replace(record_errors=list(partition.record_errors))


def parse(frame: memoryview, pos: int, version: int) -> ProduceRequest:
    """The request; the short way finds the same in it, or leaves it to the long one."""
    one = produce.parse_one(frame, pos, version)
    try:
        request = produce.parse(frame, pos, version)
    except MalformedMessageError:
        assert one is None
        raise
    if one is not None:
        acks, timeout_ms, topic, index, records = one
        assert request == ProduceRequest(None, acks, timeout_ms, [(topic, [(index, records)])])
    return request


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_request_of_every_version_is_understood_as_kafka_means_it(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version, st.tuples(int32s, st.none() | blobs)))
    request = ProduceRequest(data.draw(st.none() | names), data.draw(int16s), data.draw(durations), topics)
    body = kio_bytes("produce", version, "request", request_values(version, request))

    assert parse(memoryview(bytearray(HEADER + body)), len(HEADER), version) == request
    ours = produce_client.encode_request(
        version, topics, acks=request.acks, timeout_ms=request.timeout_ms, transactional_id=request.transactional_id
    )
    assert ours == body


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_an_answer_of_every_version_is_what_kafka_would_send(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version, produced))
    throttle_ms = data.draw(durations)
    nodes = data.draw(st.just([]) | st.lists(endpoints, max_size=2))
    values = {
        "responses": [
            named(version, topic) | {"partition_responses": [partition_values(partition) for partition in partitions]}
            for topic, partitions in topics
        ],
        "throttle_time": throttle_ms,
        "node_endpoints": [node._asdict() for node in nodes],
    }
    body = kio_bytes("produce", version, "response", values)
    header = struct.pack(">i", 77) + (b"\x00" if version >= produce.FLEXIBLE_SINCE else b"")

    assert produce.encode_response(version, 77, topics, throttle_ms, nodes) == header + body
    parsed = produce_client.parse_response(memoryview(header + body), len(header), version)
    assert parsed.throttle_ms == throttle_ms
    assert parsed.node_endpoints == (nodes if version >= produce.CURRENT_LEADER_SINCE else [])
    assert [(topic, [seen_by(version, p) for p in partitions]) for topic, partitions in parsed.topics] == [
        (topic, [seen_by(version, p) for p in partitions]) for topic, partitions in topics
    ]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [1, 61, 126, 127, 128, 16_382, 16_383, 16_384, 2_100_000])
def test_a_request_of_one_batch_of_any_size_is_not_copied(version: int, size: int) -> None:
    topic: TopicKey = TOPIC_ID if version >= produce.TOPIC_ID_SINCE else "orders"
    records = bytes(range(256)) * (size // 256) + bytes(range(size % 256))
    frame = bytearray(HEADER + produce_client.encode_request(version, [(topic, [(5, records)])], acks=1))
    one = produce.parse_one(memoryview(frame), len(HEADER), version)
    if size < 1 << 21 or version < produce.FLEXIBLE_SINCE:
        assert one is not None
        assert (*one[:4], bytes(one[4])) == (1, 30_000, topic, 5, records)
    request = parse(memoryview(frame), len(HEADER), version)

    ((found, [(index, view)]),) = request.topics
    assert view is not None
    assert (found, index, bytes(view)) == (topic, 5, records)
    (view if one is None else one[4])[0] = 0xAA
    assert frame.count(0xAA) == records.count(0xAA) + 1


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= produce.FLEXIBLE_SINCE])
def test_fields_of_the_future_are_skipped(version: int) -> None:
    topic: TopicKey = TOPIC_ID if version >= produce.TOPIC_ID_SINCE else "orders"
    body = produce_client.encode_request(version, [(topic, [(5, b"x" * 70)])])
    unknown = b"\x02" + b"\x07\x03abc" + unsigned(900) + b"\x00"

    for kept in (3, 2, 1):
        tagged = body[: len(body) - kept] + unknown + body[len(body) - kept + 1 :]
        assert parse(memoryview(tagged), 0, version) == parse(memoryview(body), 0, version)


@pytest.mark.fuzz
@pytest.mark.parametrize("version", [3, 8, 9, 13])
@given(data=st.data())
def test_a_damaged_request_is_refused_or_understood_but_never_worse(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version, st.tuples(int32s, st.none() | st.binary(max_size=90))))
    body = bytearray(produce_client.encode_request(version, topics, transactional_id=data.draw(st.none() | names)))
    damage(body, data)
    try:
        request = parse(memoryview(body), 0, version)
    except MalformedMessageError:
        return
    assert sum(len(records or b"") for _, partitions in request.topics for _, records in partitions) <= len(body)


@pytest.mark.fuzz
@pytest.mark.parametrize("version", [3, 8, 9, 13])
@given(data=st.data())
def test_a_damaged_answer_is_refused_or_understood_but_never_worse(version: int, data: st.DataObject) -> None:
    answer = bytearray(produce.encode_response(version, 1, data.draw(topics_of(version, produced))))
    damage(answer, data)
    try:
        produce_client.parse_response(memoryview(answer), 4, version)
    except MalformedMessageError:
        return


@pytest.mark.parametrize("version", VERSIONS)
def test_no_cut_of_a_request_is_taken_for_a_request(version: int) -> None:
    topic: TopicKey = TOPIC_ID if version >= produce.TOPIC_ID_SINCE else "orders"
    for partitions in ([(5, b"x" * 70)], [(5, b"x" * 200), (6, None), (7, b"")]):
        body = produce_client.encode_request(version, [(topic, partitions)], transactional_id="t")
        for end in range(len(body)):
            with pytest.raises(MalformedMessageError):
                parse(memoryview(body)[:end], 0, version)
        with pytest.raises(MalformedMessageError):
            parse(memoryview(body + b"\x00"), 0, version)


START = b"\x00" + struct.pack(">hi", -1, 1000)
START_CLASSIC = struct.pack(">hhi", -1, -1, 1000)
HOSTILE = {
    "null topics": (11, START + b"\x00\x00"),
    "null topic name": (11, START + b"\x02\x00\x01\x00\x00"),
    "null partitions": (11, START + b"\x02\x02a\x00\x00\x00"),
    "a million topics": (11, START + unsigned(1_000_001) + b"\x01\x01\x00" * 1_000_000 + b"\x00"),
    "more partitions than one request may have": (
        11,
        START + b"\x02\x02a" + unsigned(PARTITIONS_PER_REQUEST_MAX + 1) + b"\x00\x00\x00\x00\x00\x00" * 10,
    ),
    "varint of six bytes": (11, START + b"\x80\x80\x80\x80\x80\x00"),
    "varint of 35 bits": (11, START + b"\xff\xff\xff\xff\x7f"),
    "name that is not UTF-8": (11, START + b"\x02\x03\xff\xfe\x01\x00\x00"),
    "name longer than the frame": (11, START + b"\x02\x7fabc"),
    "records longer than the frame": (11, START + b"\x02\x02a\x02\x00\x00\x00\x00\xff\xff\xff\xff\x0fabc"),
    "tagged field longer than the frame": (11, START + b"\x01\x01\x00\xff\xff\xff\xff\x0f"),
    "four billion tagged fields": (11, START + b"\x01\xff\xff\xff\xff\x0f"),
    "a thousand tagged fields": (11, START + b"\x01" + unsigned(1000) + b"\x01\x00" * 1000),
    "classic: null name": (7, START_CLASSIC + struct.pack(">ihi", 1, -1, 0)),
    "classic: name of negative length": (7, START_CLASSIC + struct.pack(">ihi", 1, -7, 0)),
    "classic: negative topics": (7, START_CLASSIC + struct.pack(">i", -1)),
    "classic: two billion topics": (7, START_CLASSIC + struct.pack(">i", (1 << 31) - 1)),
    "classic: negative partitions": (7, START_CLASSIC + struct.pack(">ih1si", 1, 1, b"a", -1)),
    "classic: negative records": (7, START_CLASSIC + struct.pack(">ih1siii", 1, 1, b"a", 1, 0, -2)),
    "classic: records longer than the frame": (7, START_CLASSIC + struct.pack(">ih1siii", 1, 1, b"a", 1, 0, 9)),
    "classic: name that is not UTF-8": (7, START_CLASSIC + struct.pack(">ih1siii", 1, 1, b"\xff", 1, 0, 0)),
}


@pytest.mark.parametrize(("version", "body"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_lie_about_lengths_closes_the_connection(version: int, body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        parse(memoryview(body), 0, version)
