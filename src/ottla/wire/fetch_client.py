"""Fetch, versions 4 to 18, as a consumer or a follower sees it: `encode_request`, `parse_response`.

A follower's answers are large and come all the time, so it has a reader of its own: `parse_replica_response`. That one
takes apart what is usual in one step per partition, and leaves tagged fields and lists of aborted transactions, which a
follower does not ask for, to the general one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.errors import MalformedMessageError
from ottla.model.ids import ZERO_UUID
from ottla.wire.fetch_types import (
    ANY_HIGH_WATERMARK,
    CLUSTER_ID_TAG,
    CURRENT_LEADER_TAG,
    DIVERGING_EPOCH_TAG,
    FLEXIBLE_SINCE,
    FOLLOWER_END_START,
    HIGH_WATERMARK_SINCE,
    HIGH_WATERMARK_TAG,
    LEADER_EPOCH_SINCE,
    LOG_START_OFFSET_SINCE,
    NODE_ENDPOINTS_SINCE,
    RACK_SINCE,
    REPLICA_DIRECTORY_SINCE,
    REPLICA_DIRECTORY_TAG,
    REPLICA_STATE_SINCE,
    REPLICA_STATE_TAG,
    SESSION_SINCE,
    SNAPSHOT_ID_TAG,
    TOPIC_ID_SINCE,
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FollowerPartition,
    PartitionData,
    SnapshotId,
)
from ottla.wire.fields import (
    NO_TAGS,
    NODE_ENDPOINTS_TAG,
    CurrentLeader,
    NodeEndpoint,
    Reader,
    TopicKey,
    encode_count,
    encode_string,
    encode_tags,
    encode_topic,
    skip_tags,
    topic_id,
)
from ottla.wire.varint import read_unsigned, unsigned

_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_WAIT_TO_ISOLATION: Final = Struct(">iiib")
_SESSION: Final = Struct(">ii")
_REPLICA_STATE: Final = Struct(">iq")
_PARTITION_V4: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqi")
_pack_replica_start = Struct(">iiibii").pack
_pack_replica_row = Struct(">iiqiqix").pack
_pack_one_replica = Struct(">iiibiiB16sBiiqiqixx5siqx").pack
_OUTCOME: Final = Struct(">ihqq")
_REPLICA_START: Final = Struct(">ihi")
_REPLICA_PARTITION: Final = Struct(">ihqqqBi")
_ONE_REPLICA: Final = Struct(">ihiB16sBihqqqBi")
_unpack_one_replica = _ONE_REPLICA.unpack_from
_unpack_replica_partition = _REPLICA_PARTITION.unpack_from
_TOPIC_ID_BYTES: Final = 16


class FetchResponse(NamedTuple):
    """What came back; the records of each partition are views of the frame."""

    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[tuple[TopicKey, list[PartitionData]]]
    node_endpoints: list[NodeEndpoint]


class ReplicaRow(NamedTuple):
    """The answer for one partition, as far as a follower looks at it."""

    topic: TopicKey
    index: int  # type: ignore[assignment]  # tuple.index is not missed
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    diverging_epoch: EpochEndOffset | None


class ReplicaAnswer(NamedTuple):
    """What came back; the records are views of the frame."""

    throttle_ms: int
    error_code: int
    session_id: int
    rows: list[ReplicaRow]


_new_row: Callable[[tuple[object, ...]], ReplicaRow] = partial(tuple.__new__, ReplicaRow)


def fetch_request(
    topics: list[tuple[TopicKey, list[FetchPartition]]],
    *,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: list[tuple[TopicKey, list[int]]] | None = None,
    rack_id: str = "",
    cluster_id: str | None = None,
    replica_id: int = -1,
    replica_epoch: int = -1,
    followed: dict[tuple[TopicKey, int], FollowerPartition] | None = None,
) -> FetchRequest:
    """A request with a consumer's defaults: outside of any session, uncommitted records too."""
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch,
        topics, forgotten or [], rack_id, cluster_id, replica_epoch, followed or {},
    )  # fmt: skip


def encode_request(version: int, request: FetchRequest) -> bytes:
    """The request's body. From version 13 on topics are named by id. Fields that the version lacks are left out."""
    flexible = version >= FLEXIBLE_SINCE
    parts = [_encode_start(version, request), encode_count(len(request.topics), flexible)]
    for topic, partitions in request.topics:
        parts += (encode_topic(topic, flexible), encode_count(len(partitions), flexible))
        parts += [_encode_partition(version, topic, partition, request.followed) for partition in partitions]
        if flexible:
            parts.append(NO_TAGS)
    if version >= SESSION_SINCE:
        parts.append(_encode_forgotten(request.forgotten, flexible))
    if version >= RACK_SINCE:
        parts.append(encode_string(request.rack_id, flexible))
    if flexible:
        parts.append(_encode_request_tags(version, request))
    return b"".join(parts)


def encode_replica_request(
    rows: Sequence[tuple[tuple[UUID, int], tuple[int, int, int, int]]],
    *,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    partition_bytes: int,
    session_id: int,
    session_epoch: int,
    replica_id: int,
    replica_epoch: int,
) -> bytes:
    """What `encode_request` makes of a follower's request in which nothing is forgotten; from version 15 on.

    A row is the topic's id and the partition; its leader epoch, offset, last epoch and log start.
    """
    if len(rows) == 1:
        (topic, index), (leader_epoch, offset, last_epoch, start_offset) = rows[0]
        return _pack_one_replica(
            max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch, 2, topic.bytes, 2,
            index, leader_epoch, offset, last_epoch, start_offset, partition_bytes,
            FOLLOWER_END_START, replica_id, replica_epoch,
        )  # fmt: skip
    topics: dict[UUID, list[bytes]] = {}
    for (topic, index), (leader_epoch, offset, last_epoch, start_offset) in rows:
        row = _pack_replica_row(index, leader_epoch, offset, last_epoch, start_offset, partition_bytes)
        topics.setdefault(topic, []).append(row)
    parts = [
        _pack_replica_start(max_wait_ms, min_bytes, max_bytes, 0, session_id, session_epoch),
        unsigned(len(topics) + 1),
    ]
    for topic, packed in topics.items():
        parts += (topic.bytes, unsigned(len(packed) + 1), *packed, NO_TAGS)
    parts += (FOLLOWER_END_START, _REPLICA_STATE.pack(replica_id, replica_epoch), NO_TAGS)
    return b"".join(parts)


def _encode_start(version: int, request: FetchRequest) -> bytes:
    start = _WAIT_TO_ISOLATION.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level)
    if version < REPLICA_STATE_SINCE:
        start = _I32.pack(request.replica_id) + start
    if version >= SESSION_SINCE:
        start += _SESSION.pack(request.session_id, request.session_epoch)
    return start


def _encode_partition(
    version: int,
    topic: TopicKey,
    partition: FetchPartition,
    followed: Mapping[tuple[TopicKey, int], FollowerPartition],
) -> bytes:
    index, leader_epoch, offset, last_epoch, start_offset, size = partition
    if version >= FLEXIBLE_SINCE:
        row = _PARTITION_V12.pack(index, leader_epoch, offset, last_epoch, start_offset, size)
        follower = followed.get((topic, index))
        return row + (NO_TAGS if follower is None else _encode_follower(version, follower))
    if version >= LEADER_EPOCH_SINCE:
        return _PARTITION_V9.pack(index, leader_epoch, offset, start_offset, size)
    if version >= LOG_START_OFFSET_SINCE:
        return _PARTITION_V5.pack(index, offset, start_offset, size)
    return _PARTITION_V4.pack(index, offset, size)


def _encode_follower(version: int, follower: FollowerPartition) -> bytes:
    fields = []
    if version >= REPLICA_DIRECTORY_SINCE and follower.replica_directory_id != ZERO_UUID:
        fields.append((REPLICA_DIRECTORY_TAG, follower.replica_directory_id.bytes))
    if version >= HIGH_WATERMARK_SINCE and follower.high_watermark != ANY_HIGH_WATERMARK:
        fields.append((HIGH_WATERMARK_TAG, _I64.pack(follower.high_watermark)))
    return encode_tags(*fields)


def _encode_forgotten(forgotten: Sequence[tuple[TopicKey, Sequence[int]]], flexible: bool) -> bytes:
    parts = [encode_count(len(forgotten), flexible)]
    for topic, indexes in forgotten:
        parts += (encode_topic(topic, flexible), encode_count(len(indexes), flexible))
        parts += [_I32.pack(index) for index in indexes]
        if flexible:
            parts.append(NO_TAGS)
    return b"".join(parts)


def _encode_request_tags(version: int, request: FetchRequest) -> bytes:
    fields = []
    if request.cluster_id is not None:
        fields.append((CLUSTER_ID_TAG, encode_string(request.cluster_id, flexible=True)))
    if version >= REPLICA_STATE_SINCE and (request.replica_id, request.replica_epoch) != (-1, -1):
        state = _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + NO_TAGS
        fields.append((REPLICA_STATE_TAG, state))
    return encode_tags(*fields)


def parse_response(frame: memoryview, pos: int, version: int) -> FetchResponse:
    """The answer whose body starts at `pos`, after the response header."""
    reader = Reader(frame, pos, flexible=version >= FLEXIBLE_SINCE)
    throttle_ms = reader.int32()
    error_code, session_id = (reader.int16(), reader.int32()) if version >= SESSION_SINCE else (0, 0)
    topics = reader.array(lambda reader: _topic(reader, version))
    node_endpoints: list[NodeEndpoint] = []
    for tag, content in reader.tags():
        if tag == NODE_ENDPOINTS_TAG and version >= NODE_ENDPOINTS_SINCE:
            node_endpoints = content.node_endpoints()
    reader.finish()
    return FetchResponse(throttle_ms, error_code, session_id, topics, node_endpoints)


def _topic(reader: Reader, version: int) -> tuple[TopicKey, list[PartitionData]]:
    topic = reader.topic(by_id=version >= TOPIC_ID_SINCE)
    partitions = reader.array(lambda reader: _partition(reader, version))
    reader.skip_tags()
    return topic, partitions


def _partition(reader: Reader, version: int) -> PartitionData:
    index, error_code, high_watermark, stable_offset = reader.unpack(_OUTCOME)
    start_offset = reader.int64() if version >= LOG_START_OFFSET_SINCE else -1
    aborted = reader.nullable_array(_aborted)
    preferred = reader.int32() if version >= RACK_SINCE else -1
    records = reader.nullable_bytes()
    diverging, leader, snapshot = _partition_tags(reader)
    return PartitionData(
        index, error_code, high_watermark, stable_offset, start_offset, aborted, preferred, records,
        diverging, leader, snapshot,
    )  # fmt: skip


def _aborted(reader: Reader) -> tuple[int, int]:
    aborted = reader.int64(), reader.int64()
    reader.skip_tags()
    return aborted


def _partition_tags(reader: Reader) -> tuple[EpochEndOffset | None, CurrentLeader | None, SnapshotId | None]:
    diverging, leader, snapshot = None, None, None
    if not reader.has_tags():
        return diverging, leader, snapshot
    for tag, content in reader.tags():
        if tag == DIVERGING_EPOCH_TAG:
            diverging = EpochEndOffset(content.int32(), content.int64())
        elif tag == CURRENT_LEADER_TAG:
            leader = content.current_leader()
        elif tag == SNAPSHOT_ID_TAG:
            snapshot = SnapshotId(content.int64(), content.int32())
    return diverging, leader, snapshot


def parse_replica_response(frame: memoryview, version: int) -> ReplicaAnswer:
    """The answer to a follower, which is all of `frame` after the response header; from version 13 on."""
    if len(frame) > _ONE_REPLICA.size:
        one = _parse_one_replica(frame)
        if one is not None:
            return one
    try:
        throttle_ms, error_code, session_id = _REPLICA_START.unpack_from(frame)
        count, pos = read_unsigned(frame, _REPLICA_START.size)
        rows: list[ReplicaRow] = []
        for _ in range(count - 1):
            topic = topic_id(bytes(frame[pos : pos + _TOPIC_ID_BYTES]))
            partitions, pos = read_unsigned(frame, pos + _TOPIC_ID_BYTES)
            for _ in range(partitions - 1):
                row, pos = _replica_row(frame, pos, version, topic)
                rows.append(row)
            pos = skip_tags(frame, pos) if frame[pos] else pos + 1
    except (IndexError, StructError):
        raise MalformedMessageError("the answer to a Fetch ends too early") from None
    return ReplicaAnswer(throttle_ms, error_code, session_id, rows)


def _parse_one_replica(frame: memoryview) -> ReplicaAnswer | None:
    """An answer about one partition with nothing unusual in it; None if it is another one."""
    (
        throttle_ms, error_code, session_id, topics, topic, partitions,
        index, code, high_watermark, _, start_offset, aborted, _,
    ) = _unpack_one_replica(frame)  # fmt: skip
    if topics != 2 or partitions != 2 or aborted > 1:
        return None
    try:
        length, after = read_unsigned(frame, _ONE_REPLICA.size)
        end = after + length - 1 if length else after
        if frame[end] or frame[end + 1]:
            return None
    except (IndexError, MalformedMessageError):
        return None
    row = _new_row((topic_id(topic), index, code, high_watermark, start_offset, frame[after:end], None))
    return ReplicaAnswer(throttle_ms, error_code, session_id, [row])


def _replica_row(frame: memoryview, pos: int, version: int, topic: TopicKey) -> tuple[ReplicaRow, int]:
    index, error_code, high_watermark, _, start_offset, aborted, _ = _unpack_replica_partition(frame, pos)
    if aborted <= 1:
        length, after = read_unsigned(frame, pos + _REPLICA_PARTITION.size)
        end = after + length - 1 if length else after
        if frame[end] == 0:
            row = ReplicaRow(topic, index, error_code, high_watermark, start_offset, frame[after:end], None)
            return row, end + 1
    reader = Reader(frame, pos, flexible=True)
    data = _partition(reader, version)
    records = data.records if isinstance(data.records, memoryview) else memoryview(b"")
    row = ReplicaRow(topic, index, error_code, high_watermark, start_offset, records, data.diverging_epoch)
    return row, reader.pos
