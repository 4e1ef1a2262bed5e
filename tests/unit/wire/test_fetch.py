"""Consumers and followers of every version are understood and answered, and no bytes from outside do harm."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.model.chunks import Chunks, FileSlice
from ottla.model.errors import MalformedMessageError
from ottla.model.ids import ZERO_UUID
from ottla.wire import fetch, fetch_client, fetch_types
from ottla.wire.fetch_client import fetch_request
from ottla.wire.fetch_types import (
    ANY_HIGH_WATERMARK,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FollowerPartition,
    PartitionData,
    SnapshotId,
)
from ottla.wire.fields import PARTITIONS_PER_REQUEST_MAX, CurrentLeader, NodeEndpoint, TopicKey
from ottla.wire.varint import unsigned
from tests.unit.wire.damage import damage
from tests.unit.wire.kio_oracle import (
    blobs,
    durations,
    error_codes,
    int32s,
    int64s,
    kio_bytes,
    names,
    topic_ids,
)

VERSIONS = range(fetch_types.VERSION_MIN, fetch_types.VERSION_MAX + 1)
HEADER = b"some header"
TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
int8s = st.integers(-128, 127)

wanted = st.builds(FetchPartition, int32s, int32s, int64s, int32s, int64s, int32s)
followers = st.builds(FollowerPartition, st.just(ZERO_UUID) | topic_ids, st.just(ANY_HIGH_WATERMARK) | int64s)
endpoints = st.builds(NodeEndpoint, int32s, names, int32s, st.none() | names)
answered = st.builds(
    PartitionData,
    index=int32s,
    error_code=error_codes,
    high_watermark=int64s,
    last_stable_offset=int64s,
    log_start_offset=int64s,
    aborted=st.none() | st.lists(st.tuples(int64s, int64s), max_size=3),
    preferred_read_replica=int32s,
    records=blobs,
    diverging_epoch=st.none() | st.builds(EpochEndOffset, st.integers(0, 9), int64s),
    current_leader=st.none() | st.builds(CurrentLeader, st.integers(0, 9), int32s),
    snapshot_id=st.none() | st.builds(SnapshotId, st.integers(0, 9), int32s),
)


class MemoryFile:
    """A file that is not on disk."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def fileno(self) -> int:
        return -1

    def pread(self, size: int, position: int) -> bytes:
        return self.content[position : position + size]


def received(chunks: Chunks) -> bytes:
    """What a client gets to see."""
    return b"".join(
        chunk.file.pread(chunk.length, chunk.position) if isinstance(chunk, FileSlice) else chunk for chunk in chunks
    )


def keys_of(version: int) -> st.SearchStrategy[TopicKey]:
    return topic_ids if version >= fetch_types.TOPIC_ID_SINCE else names


def topics_of(version: int, partitions: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[TopicKey, list[Any]]]]:
    return st.lists(st.tuples(keys_of(version), st.lists(partitions, max_size=4)), max_size=3)


def named(version: int, topic: TopicKey) -> dict[str, TopicKey]:
    return {"topic_id" if version >= fetch_types.TOPIC_ID_SINCE else "topic": topic}


def one_topic(version: int) -> TopicKey:
    return TOPIC_ID if version >= fetch_types.TOPIC_ID_SINCE else "orders"


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    """A request that says no more than its version can."""
    topics = draw(topics_of(version, wanted.map(lambda partition: wanted_by(version, partition))))
    followed = {}
    if version >= fetch_types.REPLICA_DIRECTORY_SINCE and draw(st.booleans()):
        for topic, partitions in topics:
            for partition in partitions:
                follower = draw(followers)
                if version < fetch_types.HIGH_WATERMARK_SINCE:
                    follower = follower._replace(high_watermark=ANY_HIGH_WATERMARK)
                if follower != (ZERO_UUID, ANY_HIGH_WATERMARK):
                    followed[topic, partition.index] = follower
    sessions = version >= fetch_types.SESSION_SINCE
    return FetchRequest(
        replica_id=draw(st.just(-1) | int32s),
        max_wait_ms=draw(durations),
        min_bytes=draw(int32s),
        max_bytes=draw(int32s),
        isolation_level=draw(int8s),
        session_id=draw(int32s) if sessions else 0,
        session_epoch=draw(int32s) if sessions else -1,
        topics=topics,
        forgotten=draw(topics_of(version, int32s)) if sessions else [],
        rack_id=draw(st.just("") | names) if version >= fetch_types.RACK_SINCE else "",
        cluster_id=draw(st.none() | names) if version >= fetch_types.FLEXIBLE_SINCE else None,
        replica_epoch=draw(st.just(-1) | int64s) if version >= fetch_types.REPLICA_STATE_SINCE else -1,
        followed=followed,
    )


def wanted_by(version: int, partition: FetchPartition) -> FetchPartition:
    if version < fetch_types.LOG_START_OFFSET_SINCE:
        partition = partition._replace(log_start_offset=-1)
    if version < fetch_types.LEADER_EPOCH_SINCE:
        partition = partition._replace(current_leader_epoch=-1)
    if version < fetch_types.FLEXIBLE_SINCE:
        partition = partition._replace(last_fetched_epoch=-1)
    return partition


def answered_in(version: int, data: PartitionData) -> PartitionData:
    if version < fetch_types.LOG_START_OFFSET_SINCE:
        data = data._replace(log_start_offset=-1)
    if version < fetch_types.RACK_SINCE:
        data = data._replace(preferred_read_replica=-1)
    if version < fetch_types.FLEXIBLE_SINCE:
        data = data._replace(diverging_epoch=None, current_leader=None, snapshot_id=None)
    return data


def request_values(version: int, request: FetchRequest) -> dict[str, Any]:
    def partition_values(topic: TopicKey, partition: FetchPartition) -> dict[str, Any]:
        values: dict[str, Any] = partition._asdict()
        values["partition"] = values["index"]
        values["partition_max_bytes"] = values["max_bytes"]
        return values | request.followed.get((topic, partition.index), FollowerPartition(ZERO_UUID, -1))._asdict()

    def without_default(values: dict[str, Any], topic: TopicKey) -> dict[str, Any]:
        if (topic, values["partition"]) not in request.followed:
            del values["high_watermark"]
        return values

    return request._asdict() | {
        "max_wait": request.max_wait_ms,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "topics": [
            named(version, topic)
            | {"partitions": [without_default(partition_values(topic, p), topic) for p in partitions]}
            for topic, partitions in request.topics
        ],
        "forgotten_topics_data": [
            named(version, topic) | {"partitions": indexes} for topic, indexes in request.forgotten
        ],
    }


def partition_values(data: PartitionData) -> dict[str, Any]:
    values = {key: value for key, value in data._asdict().items() if value is not None}
    values["partition_index"] = data.index
    values["aborted_transactions"] = (
        None
        if data.aborted is None
        else [{"producer_id": producer_id, "first_offset": offset} for producer_id, offset in data.aborted]
    )
    for tagged in ("diverging_epoch", "current_leader", "snapshot_id"):
        if tagged in values:
            values[tagged] = values[tagged]._asdict()
    return values


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_a_request_of_every_version_is_understood_as_kafka_means_it(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(version))
    body = kio_bytes("fetch", version, "request", request_values(version, request))

    assert fetch.parse(memoryview(HEADER + body), len(HEADER), version) == request
    assert fetch_client.encode_request(version, request) == body


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=20)
@given(data=st.data())
def test_an_answer_of_every_version_is_what_kafka_would_send(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version, answered))
    nodes = data.draw(st.just([]) | st.lists(endpoints, max_size=2))
    throttle_ms, error_code, session_id = data.draw(st.tuples(durations, error_codes, int32s))
    values = {
        "throttle_time": throttle_ms,
        "error_code": error_code,
        "session_id": session_id,
        "responses": [
            named(version, topic) | {"partitions": [partition_values(partition) for partition in partitions]}
            for topic, partitions in topics
        ],
        "node_endpoints": [node._asdict() for node in nodes],
    }
    header = struct.pack(">i", 77) + (b"\x00" if version >= fetch_types.FLEXIBLE_SINCE else b"")
    expected = header + kio_bytes("fetch", version, "response", values)

    assert received(fetch.encode_response(version, 77, error_code, session_id, topics, throttle_ms, nodes)) == expected
    stored = [(topic, [as_slice(partition) for partition in partitions]) for topic, partitions in topics]
    assert received(fetch.encode_response(version, 77, error_code, session_id, stored, throttle_ms, nodes)) == expected
    parsed = fetch_client.parse_response(memoryview(expected), len(header), version)
    assert parsed.throttle_ms == throttle_ms
    if version >= fetch_types.SESSION_SINCE:
        assert (parsed.error_code, parsed.session_id) == (error_code, session_id)
    assert parsed.node_endpoints == (nodes if version >= fetch_types.NODE_ENDPOINTS_SINCE else [])
    assert parsed.topics == [(topic, [answered_in(version, p) for p in partitions]) for topic, partitions in topics]


def as_slice(data: PartitionData) -> PartitionData:
    assert isinstance(data.records, bytes)
    return data._replace(records=FileSlice(MemoryFile(b"before" + data.records), 6, len(data.records)))


@pytest.mark.parametrize("version", VERSIONS)
def test_only_file_slices_cut_an_answer(version: int) -> None:
    stored = FileSlice(MemoryFile(b"records"), 0, 7)
    partitions = [PartitionData(0), PartitionData(1, records=stored), PartitionData(2), PartitionData(3, records=b"x")]
    kinds = [type(chunk) for chunk in fetch.encode_response(version, 1, 0, 0, [(one_topic(version), partitions)])]
    assert kinds == [bytes, FileSlice, bytes]


@pytest.mark.parametrize("version", VERSIONS)
def test_null_records_reach_a_client_as_no_records(version: int) -> None:
    empty_file = FileSlice(MemoryFile(b""), 0, 0)
    partitions = [PartitionData(0), PartitionData(1, records=b""), PartitionData(2, records=empty_file)]
    chunks = fetch.encode_response(version, 1, 0, 0, [(one_topic(version), partitions)])
    answer = received(chunks)
    header_bytes = 5 if version >= fetch_types.FLEXIBLE_SINCE else 4

    assert len(chunks) == 1
    ((_, parsed),) = fetch_client.parse_response(memoryview(answer), header_bytes, version).topics
    assert [data.records for data in parsed] == [b"", b"", b""]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_of_a_thousand_partitions_keeps_their_order(version: int) -> None:
    partitions = [wanted_by(version, FetchPartition(i, 7, i * 3, 5, i, 1 << 20)) for i in range(1000)]
    body = fetch_client.encode_request(version, fetch_request([(one_topic(version), partitions)]))
    assert fetch.parse(memoryview(body), 0, version).topics == [(one_topic(version), partitions)]


@pytest.mark.parametrize("version", [version for version in VERSIONS if version >= fetch_types.FLEXIBLE_SINCE])
def test_fields_of_the_future_are_skipped(version: int) -> None:
    partition = b"\x00" * 32
    topic = TOPIC_ID.bytes if version >= fetch_types.TOPIC_ID_SINCE else b"\x02a"
    start = b"\x00" * (21 if version >= fetch_types.REPLICA_STATE_SINCE else 25)
    unknown = b"\x02" + b"\x09\x03abc" + unsigned(900) + b"\x00"
    for count in (1, 2):
        for place in range(count + 3):
            tags = [unknown if place == here else b"\x00" for here in range(count + 3)]
            rows = b"".join(partition + tags[here] for here in range(count))
            forgotten = b"\x02" + topic + b"\x02\x00\x00\x00\x05" + tags[count + 1]
            body = start + b"\x02" + topic + unsigned(count + 1) + rows + tags[count] + forgotten + b"\x01" + tags[-1]
            request = fetch.parse(memoryview(body), 0, version)
            assert [len(partitions) for _, partitions in request.topics] == [count]
            assert request.forgotten[0][1] == [5]
            assert request.followed == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_no_cut_of_a_request_is_taken_for_a_request(version: int) -> None:
    partitions = [FetchPartition(i, 0, 0, 0, 0, 0) for i in range(2)]
    for count in (1, 2):
        request = fetch_request([(one_topic(version), partitions[:count])], rack_id="r", cluster_id="c", replica_id=3)
        body = fetch_client.encode_request(version, request)
        for end in range(len(body)):
            with pytest.raises(MalformedMessageError):
                fetch.parse(memoryview(body)[:end], 0, version)
        with pytest.raises(MalformedMessageError):
            fetch.parse(memoryview(body + b"\x00"), 0, version)


@pytest.mark.fuzz
@pytest.mark.parametrize("version", [4, 11, 12, 18])
@given(data=st.data())
def test_a_damaged_request_is_refused_or_understood_but_never_worse(version: int, data: st.DataObject) -> None:
    body = bytearray(fetch_client.encode_request(version, data.draw(requests(version))))
    damage(body, data)
    try:
        request = fetch.parse(memoryview(body), 0, version)
    except MalformedMessageError:
        return
    assert sum(len(partitions) for _, partitions in request.topics) * 16 <= len(body)


@pytest.mark.fuzz
@pytest.mark.parametrize("version", [4, 11, 12, 18])
@given(data=st.data())
def test_a_damaged_answer_is_refused_or_understood_but_never_worse(version: int, data: st.DataObject) -> None:
    topics = data.draw(topics_of(version, answered))
    answer = bytearray(received(fetch.encode_response(version, 1, 0, 0, topics)))
    damage(answer, data)
    try:
        fetch_client.parse_response(memoryview(answer), 4, version)
    except MalformedMessageError:
        return


START = bytes(25)
END = b"\x01\x01\x00"
HOSTILE = {
    "null topics": (12, START + b"\x00" + END),
    "null topic name": (12, START + b"\x02\x00\x01\x00" + END),
    "null partitions": (12, START + b"\x02\x02a\x00\x00" + END),
    "a million topics": (12, START + unsigned(1_000_001) + b"\x01\x01\x00" * 1_000_000 + END),
    "more partitions than one request may have": (
        12,
        START + b"\x02\x02a" + unsigned(PARTITIONS_PER_REQUEST_MAX + 2) + bytes(33) * PARTITIONS_PER_REQUEST_MAX,
    ),
    "partitions that are not there": (12, START + b"\x02\x02a\x09" + bytes(33 * 4)),
    "name that is not UTF-8": (12, START + b"\x02\x03\xff\xfe\x01\x00" + END),
    "null rack": (12, START + b"\x01\x01\x00\x00"),
    "replica state that is too short": (15, bytes(21) + b"\x01\x01\x01\x01\x01\x04\x00\x00\x00\x00"),
    "forgotten partitions that are not there": (12, START + b"\x01\x02\x02a\xff\xff\xff\xff\x0f" + bytes(99)),
    "classic: null name": (11, START + struct.pack(">ihi", 1, -1, 0) + bytes(6)),
    "classic: negative topics": (11, START + struct.pack(">i", -1) + bytes(6)),
    "classic: two billion topics": (11, START + struct.pack(">i", (1 << 31) - 1) + bytes(6)),
    "classic: negative partitions": (11, START + struct.pack(">ihi", 1, 0, -1) + bytes(6)),
    "classic: partitions that are not there": (11, START + struct.pack(">ihi", 1, 0, 200_000) + bytes(60)),
    "classic: null rack": (11, START + bytes(4) + bytes(4) + b"\xff\xff"),
    "classic: negative forgotten topics": (7, START + bytes(4) + b"\xff\xff\xff\xff"),
}


@pytest.mark.parametrize(("version", "body"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_lie_about_lengths_closes_the_connection(version: int, body: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        fetch.parse(memoryview(body), 0, version)
