"""Produce, versions 3 to 13, as a client sees it: `encode_request`, `parse_response`."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from ottla.wire.fields import (
    NO_TAGS,
    NODE_ENDPOINTS_TAG,
    CurrentLeader,
    NodeEndpoint,
    Reader,
    TopicKey,
    encode_count,
    encode_string,
    encode_topic,
)
from ottla.wire.produce import (
    CURRENT_LEADER_SINCE,
    CURRENT_LEADER_TAG,
    FLEXIBLE_SINCE,
    LOG_START_OFFSET_SINCE,
    RECORD_ERRORS_SINCE,
    TOPIC_ID_SINCE,
    ProducedPartition,
)

_ACKS_TIMEOUT: Final = Struct(">hi")
_I32: Final = Struct(">i")
_OUTCOME: Final = Struct(">ihqq")


class ProduceResponse(NamedTuple):
    """What became of each partition's batch."""

    topics: list[tuple[TopicKey, list[ProducedPartition]]]
    throttle_ms: int
    node_endpoints: list[NodeEndpoint]


def encode_request(
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[tuple[int, bytes | bytearray | memoryview | None]]]],
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> bytes:
    """The request's body. From version 13 on topics are named by id."""
    flexible = version >= FLEXIBLE_SINCE
    tags = NO_TAGS if flexible else b""
    parts: list[bytes | bytearray | memoryview] = [
        encode_string(transactional_id, flexible),
        _ACKS_TIMEOUT.pack(acks, timeout_ms),
        encode_count(len(topics), flexible),
    ]
    for topic, partitions in topics:
        parts += (encode_topic(topic, flexible), encode_count(len(partitions), flexible))
        for index, records in partitions:
            size = -1 if records is None else len(records)
            parts += (_I32.pack(index), encode_count(size, flexible), records or b"", tags)
        parts.append(tags)
    parts.append(tags)
    return b"".join(parts)


def parse_response(frame: memoryview, pos: int, version: int) -> ProduceResponse:
    """The answer whose body starts at `pos`, after the response header."""
    reader = Reader(frame, pos, flexible=version >= FLEXIBLE_SINCE)
    topics = reader.array(lambda reader: _topic(reader, version))
    throttle_ms = reader.int32()
    node_endpoints: list[NodeEndpoint] = []
    for tag, content in reader.tags():
        if tag == NODE_ENDPOINTS_TAG and version >= CURRENT_LEADER_SINCE:
            node_endpoints = content.node_endpoints()
    reader.finish()
    return ProduceResponse(topics, throttle_ms, node_endpoints)


def _topic(reader: Reader, version: int) -> tuple[TopicKey, list[ProducedPartition]]:
    topic = reader.topic(by_id=version >= TOPIC_ID_SINCE)
    partitions = reader.array(lambda reader: _partition(reader, version))
    reader.skip_tags()
    return topic, partitions


def _partition(reader: Reader, version: int) -> ProducedPartition:
    index, error_code, base_offset, append_time = reader.unpack(_OUTCOME)
    start_offset = reader.int64() if version >= LOG_START_OFFSET_SINCE else -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    message = None
    if version >= RECORD_ERRORS_SINCE:
        record_errors = reader.array(_record_error)
        message = reader.nullable_string()
    leader: CurrentLeader | None = None
    for tag, content in reader.tags():
        if tag == CURRENT_LEADER_TAG and version >= CURRENT_LEADER_SINCE:
            leader = content.current_leader()
    return ProducedPartition(index, error_code, base_offset, append_time, start_offset, record_errors, message, leader)


def _record_error(reader: Reader) -> tuple[int, str | None]:
    record_error = reader.int32(), reader.nullable_string()
    reader.skip_tags()
    return record_error
