"""Fetch, versions 4 to 18, as a broker sees it: `parse` the request, `encode_response`.

Theory of operation. A consumer of many partitions names each of them in every full fetch, and gets an answer that is
mostly files. So `parse` turns a topic's partitions into tuples in one sweep of `Struct.iter_unpack`, which runs in C.
In flexible versions each partition ends with its tagged fields, nearly always none: a single zero byte. The sweep is
right if every byte at that distance is zero, since then each partition ends where the next one is looked for; else
`_partitions_with_tags` goes one by one.

`encode_response` never touches records. Everything between two slices of files is joined into one `bytes`, so an answer
for one partition is [bytes, FileSlice, bytes] and costs as few system calls.

Dialects: flexible from 12 on. Version 5 adds log start offsets, 7 sessions, 9 leader epochs, 11 racks, 12 divergence of
a follower's log (tagged fields), 13 topics by id, 15 moves the replica into a tagged field, 16 names endpoints, 17 adds
a follower's directory and 18 its high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias
from uuid import UUID

from ottla.model.chunks import Chunks, FileSlice
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
    PARTITIONS_PER_REQUEST_MAX,
    CurrentLeader,
    NodeEndpoint,
    Reader,
    TopicKey,
    encode_count,
    encode_current_leader,
    encode_node_endpoints,
    encode_tags,
    encode_topic,
    skip_tags,
    topic_id,
)
from ottla.wire.varint import read_unsigned, unsigned

_TAGLESS_BYTES: Final = 32
_I32: Final = Struct(">i")
_unpack_start_v4 = Struct(">iiiib").unpack_from
_unpack_start_v7 = Struct(">iiiibii").unpack_from
_unpack_start_v15 = Struct(">iiibii").unpack_from
_PARTITION_V4: Final = Struct(">iqi")
_PARTITION_V5: Final = Struct(">iqqi")
_PARTITION_V9: Final = Struct(">iiqqi")
_PARTITION_V12: Final = Struct(">iiqiqi")
_PARTITION_V12_TAGLESS: Final = Struct(">iiqiqix")
_REPLICA_STATE: Final = Struct(">iq")
_unpack_replica_state = _REPLICA_STATE.unpack_from
_ONE_FOLLOWED: Final = Struct(">iiibiiB16sBiiqiqiBB5siqB")
_unpack_one_followed = _ONE_FOLLOWED.unpack_from
_ONE_FOLLOWED_FIXED: Final = (2, 2, 0, 0, FOLLOWER_END_START, 0)
"""Counts, which are one more than there are, and no tagged fields but the usual one."""
_FOLLOWER_END_BYTES: Final = len(FOLLOWER_END_START) + _REPLICA_STATE.size + 1
_unpack_i16 = Struct(">h").unpack_from
_unpack_i32 = _I32.unpack_from
_unpack_partition_v12 = _PARTITION_V12.unpack_from
_pack_answer_start = Struct(">iBihi").pack
_pack_one_slice = Struct(">iBihiB16sBihqqqBi").pack
_ONE_SLICE_END: Final = 3 * NO_TAGS
"""Of the partition, of the topic and of the answer."""
_NOTHING_RARE: Final = [None, None, None]
"""No diverging epoch, other leader or snapshot."""
_pack_answer_start_v7 = Struct(">iihii").pack
_pack_answer_start_v4 = Struct(">iii").pack
_pack_partition = Struct(">ihqqqBi").pack
_pack_partition_v5 = Struct(">ihqqq").pack
_pack_partition_v4 = Struct(">ihqq").pack
_pack_aborted = Struct(">qq").pack
_pack_epoch_end_offset = Struct(">iq").pack
_pack_snapshot_id = Struct(">qi").pack
_pack_i32 = _I32.pack
_NOTHING_FORGOTTEN_NO_RACK: Final = b"\x00\x00\x00\x00\x00\x00"
_NO_RECORDS: Final = b"\x01"
_NO_RECORDS_CLASSIC: Final = b"\x00\x00\x00\x00"

_Parts: TypeAlias = list[bytes | bytearray | memoryview]
Row: TypeAlias = PartitionData | bytes
"""The answer for a partition, or what `encode_quiet` has made of it."""

_new_partition: Callable[[tuple[int, ...]], FetchPartition] = partial(tuple.__new__, FetchPartition)
_new_request: Callable[[tuple[object, ...]], FetchRequest] = partial(tuple.__new__, FetchRequest)


def parse(frame: memoryview, pos: int, version: int) -> FetchRequest:
    """The request whose body starts at `pos` and ends with the frame."""
    try:
        if version >= REPLICA_STATE_SINCE and len(frame) - pos == _ONE_FOLLOWED.size:
            return _parse_one_followed(frame, pos) or _parse_flexible(frame, pos, version)
        if version >= FLEXIBLE_SINCE:
            return _parse_flexible(frame, pos, version)
        return _parse_classic(frame, pos, version)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"Fetch {version}: {error}") from None


def _parse_one_followed(frame: memoryview, pos: int) -> FetchRequest | None:
    """A follower's request in which one partition has changed, as nearly all are under load; None if it is another."""
    (
        wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch, topics, topic, partitions,
        index, leader_epoch, offset, last_epoch, start_offset, size, tags, topic_tags, end, replica_id, replica_epoch,
        state_tags,
    ) = _unpack_one_followed(frame, pos)  # fmt: skip
    if (topics, partitions, tags, topic_tags, end, state_tags) != _ONE_FOLLOWED_FIXED:
        return None
    row = _new_partition((index, leader_epoch, offset, last_epoch, start_offset, size))
    return _new_request(
        (
            replica_id, wait_ms, bytes_min, bytes_max, isolation, session_id, session_epoch,
            [(topic_id(topic), [row])], [], "", None, replica_epoch, {},
        )
    )  # fmt: skip


def _parse_flexible(frame: memoryview, pos: int, version: int) -> FetchRequest:
    if version >= REPLICA_STATE_SINCE:
        start = (-1, *_unpack_start_v15(frame, pos))
        count, pos = read_unsigned(frame, pos + 21)
    else:
        start = _unpack_start_v7(frame, pos)
        count, pos = read_unsigned(frame, pos + 25)
    budget = PARTITIONS_PER_REQUEST_MAX - count
    followed: dict[tuple[TopicKey, int], FollowerPartition] = {}
    topics = []
    for _ in range(_checked(count - 1, budget)):
        if version >= TOPIC_ID_SINCE:
            topic: TopicKey = topic_id(bytes(frame[pos : pos + 16]))
            pos += 16
        else:
            length, pos = read_unsigned(frame, pos)
            after = pos + _checked(length - 1, 0)
            topic = str(frame[pos:after], "utf-8")
            pos = after
        count, pos = read_unsigned(frame, pos)
        budget -= count
        count = _checked(count - 1, budget)
        after = pos + count * _PARTITION_V12_TAGLESS.size
        if count == 1 and frame[pos + _TAGLESS_BYTES] == 0:
            partitions = [_new_partition(_unpack_partition_v12(frame, pos))]
        elif bytes(frame[pos + _TAGLESS_BYTES : after : _PARTITION_V12_TAGLESS.size]) == bytes(count):
            partitions = list(map(_new_partition, _PARTITION_V12_TAGLESS.iter_unpack(frame[pos:after])))
        else:
            partitions, after = _partitions_with_tags(frame, pos, version, count, topic, followed)
        topics.append((topic, partitions))
        pos = skip_tags(frame, after) if frame[after] else after + 1
    if len(frame) == pos + 3 and frame[pos] == 1 and frame[pos + 1] == 1 and frame[pos + 2] == 0:
        return _new_request((*start, topics, [], "", None, -1, followed))
    if len(frame) == pos + _FOLLOWER_END_BYTES and bytes(frame[pos : pos + 5]) == FOLLOWER_END_START:
        replica_id, replica_epoch = _unpack_replica_state(frame, pos + 5)
        if version >= REPLICA_STATE_SINCE and frame[-1] == 0:
            return _new_request((replica_id, *start[1:], topics, [], "", None, replica_epoch, followed))
    return _parse_rest(frame, pos, version, start, topics, followed)


def _partitions_with_tags(
    frame: memoryview,
    pos: int,
    version: int,
    count: int,
    topic: TopicKey,
    followed: dict[tuple[TopicKey, int], FollowerPartition],
) -> tuple[list[FetchPartition], int]:
    reader = Reader(frame, pos, flexible=True)
    partitions = []
    for _ in range(count):
        fetched = _new_partition(reader.unpack(_PARTITION_V12))
        directory_id, high_watermark = ZERO_UUID, ANY_HIGH_WATERMARK
        for tag, content in reader.tags():
            if tag == REPLICA_DIRECTORY_TAG and version >= REPLICA_DIRECTORY_SINCE:
                directory_id = content.uuid()
            elif tag == HIGH_WATERMARK_TAG and version >= HIGH_WATERMARK_SINCE:
                high_watermark = content.int64()
        if directory_id is not ZERO_UUID or high_watermark != ANY_HIGH_WATERMARK:
            followed[topic, fetched.index] = FollowerPartition(directory_id, high_watermark)
        partitions.append(fetched)
    return partitions, reader.pos


def _parse_rest(
    frame: memoryview,
    pos: int,
    version: int,
    start: tuple[int, ...],
    topics: list[tuple[TopicKey, list[FetchPartition]]],
    followed: dict[tuple[TopicKey, int], FollowerPartition],
) -> FetchRequest:
    """What follows the topics: forgotten ones, the rack and tagged fields, as far as the version has them."""
    reader = Reader(frame, pos, flexible=version >= FLEXIBLE_SINCE)
    forgotten: list[tuple[TopicKey, list[int]]] = []
    if version >= SESSION_SINCE:
        forgotten = reader.array(lambda reader: _forgotten(reader, version))
    rack_id = reader.string() if version >= RACK_SINCE else ""
    cluster_id, replica_epoch = None, -1
    for tag, content in reader.tags():
        if tag == CLUSTER_ID_TAG:
            cluster_id = content.nullable_string()
        elif tag == REPLICA_STATE_TAG and version >= REPLICA_STATE_SINCE:
            replica_id, replica_epoch = content.unpack(_REPLICA_STATE)
            start = (replica_id, *start[1:])
            content.skip_tags()
    reader.finish()
    return _new_request((*start, topics, forgotten, rack_id, cluster_id, replica_epoch, followed))


def _forgotten(reader: Reader, version: int) -> tuple[TopicKey, list[int]]:
    forgotten = reader.topic(by_id=version >= TOPIC_ID_SINCE), reader.array(Reader.int32)
    reader.skip_tags()
    return forgotten


def _parse_classic(frame: memoryview, pos: int, version: int) -> FetchRequest:
    if version >= SESSION_SINCE:
        start = _unpack_start_v7(frame, pos)
        pos += 25
    else:
        start = (*_unpack_start_v4(frame, pos), 0, -1)
        pos += 17
    (count,) = _unpack_i32(frame, pos)
    pos += 4
    budget = PARTITIONS_PER_REQUEST_MAX - count
    topics: list[tuple[TopicKey, list[FetchPartition]]] = []
    for _ in range(_checked(count, budget)):
        (length,) = _unpack_i16(frame, pos)
        after = pos + 2 + _checked(length, 0)
        (count,) = _unpack_i32(frame, after)
        budget -= count
        topic = str(frame[pos + 2 : after], "utf-8")
        partitions, pos = _classic_partitions(frame, after + 4, version, _checked(count, budget))
        topics.append((topic, partitions))
    if version == RACK_SINCE and len(frame) == pos + 6 and bytes(frame[pos:]) == _NOTHING_FORGOTTEN_NO_RACK:
        return _new_request((*start, topics, [], "", None, -1, {}))
    return _parse_rest(frame, pos, version, start, topics, {})


def _classic_partitions(frame: memoryview, pos: int, version: int, count: int) -> tuple[list[FetchPartition], int]:
    new = _new_partition
    layout = _classic_layout(version)
    after = pos + count * layout.size
    _checked(count, len(frame) - after)
    rows = layout.iter_unpack(frame[pos:after])
    if layout is _PARTITION_V9:
        return [new((index, epoch, offset, -1, start, size)) for index, epoch, offset, start, size in rows], after
    if layout is _PARTITION_V5:
        return [new((index, -1, offset, -1, start, size)) for index, offset, start, size in rows], after
    return [new((index, -1, offset, -1, -1, size)) for index, offset, size in rows], after


def _classic_layout(version: int) -> Struct:
    if version >= LEADER_EPOCH_SINCE:
        return _PARTITION_V9
    return _PARTITION_V5 if version >= LOG_START_OFFSET_SINCE else _PARTITION_V4


def _checked(count: int, room: int) -> int:
    """`count`, unless it is below zero or the room that would be left with it is."""
    if count < 0 or room < 0:
        raise MalformedMessageError(f"a length of {count} in a Fetch request")
    return count


def encode_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[Row]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> Chunks:
    """The answer with its header, without the size in front; null records are sent as empty ones, as Kafka does."""
    count = len(topics)
    if count == 1 and version >= TOPIC_ID_SINCE and len(topics[0][1]) == 1 and not node_endpoints:
        one = _encode_one_slice(correlation_id, error_code, session_id, topics[0], throttle_ms)
        if one is not None:
            return one
    chunks: Chunks = []
    parts: _Parts = []
    if version >= FLEXIBLE_SINCE:
        parts += (_pack_answer_start(correlation_id, 0, throttle_ms, error_code, session_id), unsigned(count + 1))
        parts = _encode_flexible(parts, topics, chunks)
        parts.append(encode_node_endpoints(node_endpoints) if version >= NODE_ENDPOINTS_SINCE else NO_TAGS)
    else:
        if version >= SESSION_SINCE:
            parts.append(_pack_answer_start_v7(correlation_id, throttle_ms, error_code, session_id, count))
        else:
            parts.append(_pack_answer_start_v4(correlation_id, throttle_ms, count))
        parts = _encode_classic(version, parts, topics, chunks)
    if parts:
        chunks.append(b"".join(parts))
    return chunks


def _encode_one_slice(
    correlation_id: int,
    error_code: int,
    session_id: int,
    topic: tuple[TopicKey, Sequence[Row]],
    throttle_ms: int,
) -> Chunks | None:
    """An answer with a slice of one file, as most are; None if there is more to say about the partition."""
    key, (row,) = topic
    if isinstance(row, bytes):
        return None
    index, code, high_watermark, stable_offset, start_offset, aborted, preferred, records, *rare = row
    if (
        not isinstance(records, FileSlice)
        or not records.length
        or aborted
        or not isinstance(key, UUID)
        or rare != _NOTHING_RARE
    ):
        return None
    start = _pack_one_slice(
        correlation_id, 0, throttle_ms, error_code, session_id, 2, key.bytes, 2,
        index, code, high_watermark, stable_offset, start_offset, 0 if aborted is None else 1, preferred,
    )  # fmt: skip
    return [start + unsigned(records.length + 1), records, _ONE_SLICE_END]


def _encode_flexible(parts: _Parts, topics: Sequence[tuple[TopicKey, Sequence[Row]]], chunks: Chunks) -> _Parts:
    """Add the topics to the parts; what lies before a slice of a file moves to the chunks. Returns what is left."""
    for topic, partitions in topics:
        parts.append(encode_topic(topic, True))
        parts.append(unsigned(len(partitions) + 1))
        for data in partitions:
            if isinstance(data, bytes):
                parts.append(data)
                continue
            (
                index, error_code, high_watermark, stable_offset, start_offset, aborted, preferred, records,
                diverging, leader, snapshot,
            ) = data  # fmt: skip
            if not aborted:
                count = 0 if aborted is None else 1  # One more than there are, and 0 for null.
                parts.append(
                    _pack_partition(index, error_code, high_watermark, stable_offset, start_offset, count, preferred)
                )
            else:
                parts.append(_pack_partition_v5(index, error_code, high_watermark, stable_offset, start_offset))
                parts.append(_encode_aborted(aborted, True))
                parts.append(_pack_i32(preferred))
            if not records:
                parts.append(_NO_RECORDS)
            elif isinstance(records, FileSlice):
                parts.append(unsigned(records.length + 1))
                if records.length:
                    chunks.append(b"".join(parts))
                    chunks.append(records)
                    parts = []
            else:
                parts.append(unsigned(len(records) + 1))
                parts.append(records)
            if diverging is None and leader is None and snapshot is None:
                parts.append(NO_TAGS)
            else:
                parts.append(_encode_partition_tags(diverging, leader, snapshot))
        parts.append(NO_TAGS)
    return parts


def _encode_classic(
    version: int, parts: _Parts, topics: Sequence[tuple[TopicKey, Sequence[Row]]], chunks: Chunks
) -> _Parts:
    """`_encode_flexible` in the classic dialect."""
    for topic, partitions in topics:
        parts.append(encode_topic(topic, False))
        parts.append(_pack_i32(len(partitions)))
        for data in partitions:
            if isinstance(data, bytes):
                parts.append(data)
                continue
            parts.append(_classic_start(version, data))
            records = data.records
            if not records:
                parts.append(_NO_RECORDS_CLASSIC)
            elif isinstance(records, FileSlice):
                parts.append(_pack_i32(records.length))
                if records.length:
                    chunks.append(b"".join(parts))
                    chunks.append(records)
                    parts = []
            else:
                parts.append(_pack_i32(len(records)))
                parts.append(records)
    return parts


def _classic_start(version: int, data: PartitionData) -> bytes:
    """What stands before a partition's records."""
    index, error_code, high_watermark, stable_offset, start_offset, aborted, preferred, *_ = data
    if version >= LOG_START_OFFSET_SINCE:
        start = _pack_partition_v5(index, error_code, high_watermark, stable_offset, start_offset)
    else:
        start = _pack_partition_v4(index, error_code, high_watermark, stable_offset)
    start += _encode_aborted(aborted, False)
    return start + _pack_i32(preferred) if version >= RACK_SINCE else start


def encode_quiet(version: int, data: PartitionData) -> bytes:
    """What an answer says of a partition without records, to stand among the rows of `encode_response`."""
    aborted = None if data.aborted is None else ()
    quiet = PartitionData(data.index, 0, *data[2:5], aborted)
    if version < FLEXIBLE_SINCE:
        return _classic_start(version, quiet) + _NO_RECORDS_CLASSIC
    return _pack_partition(*quiet[:5], 0 if aborted is None else 1, -1) + _NO_RECORDS + NO_TAGS


def _encode_aborted(aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> bytes:
    if aborted is None:
        return encode_count(-1, flexible)
    tags = NO_TAGS if flexible else b""
    entries = [_pack_aborted(producer_id, first_offset) + tags for producer_id, first_offset in aborted]
    return encode_count(len(aborted), flexible) + b"".join(entries)


def _encode_partition_tags(
    diverging: EpochEndOffset | None, leader: CurrentLeader | None, snapshot: SnapshotId | None
) -> bytes:
    fields = []
    if diverging is not None:
        fields.append((DIVERGING_EPOCH_TAG, _pack_epoch_end_offset(*diverging) + NO_TAGS))
    if leader is not None:
        fields.append((CURRENT_LEADER_TAG, encode_current_leader(leader)))
    if snapshot is not None:
        fields.append((SNAPSHOT_ID_TAG, _pack_snapshot_id(*snapshot) + NO_TAGS))
    return encode_tags(*fields)
