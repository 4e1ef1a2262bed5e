"""OffsetCommit, versions 2 to 10, as a broker sees it: `parse` the request, `encode_response`.

Consumers commit as often as they poll, so the common request is read by hand: a flexible version (8 and later), names
and counts of one byte, no tagged fields. `_parse_short` gives up (None) at the slightest doubt, and the declared
message, which knows every case, says what it is or what is wrong with it.

What an editor must keep true: the short way gives what the declared message gives. Lengths are not compared with the
end one by one: what leads out of the request ends in an IndexError or a struct error at the next field, or in a last
field that does not end where the request does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from ottla.wire.fields import NO_TAGS, TopicKey, encode_count, encode_topic, topic_id
from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.schema import decode

VERSION_MIN: Final = 2
VERSION_MAX: Final = 10
FLEXIBLE_SINCE: Final = 8
TOPIC_ID_SINCE: Final = 10
THROTTLE_SINCE: Final = 3

_ONE_BYTE: Final = 0x80
"""From here on a length takes a second byte."""
_CORRELATION: Final = Struct(">i")
_ZERO_INT32: Final = b"\x00\x00\x00\x00"
_unpack_epoch_length = Struct(">iB").unpack_from
_unpack_partition = Struct(">iqiB").unpack_from
_pack_result = Struct(">ih").pack
_pack_flexible_result = Struct(">ihx").pack


VARYING_BYTES: Final = 16
"""A request for one partition without metadata ends in its offset and leader epoch, the empty metadata and the tags."""
unpack_varying = Struct(">qiI").unpack_from
"""(request, position of the last VARYING_BYTES): offset, leader epoch, and how the request ends after these."""
EMPTY_ENDS: Final = frozenset({0, 1 << 24})
"""How it ends without metadata, be that null or empty, and without tagged fields."""


class AskedPartition(NamedTuple):
    """An offset to be committed."""

    index: int  # type: ignore[assignment]  # tuple.index is not missed
    offset: int
    leader_epoch: int
    metadata: str | None


class OffsetCommit(NamedTuple):
    """What a consumer asks. A topic has a name until version 9 and an id after it."""

    group_id: str
    generation_id_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_time_ms: int
    topics: Sequence[tuple[TopicKey, Sequence[AskedPartition]]]


# What calling the classes does, without a Python frame.
_request: Callable[[tuple[object, ...]], OffsetCommit] = partial(tuple.__new__, OffsetCommit)
_partition: Callable[[tuple[object, ...]], AskedPartition] = partial(tuple.__new__, AskedPartition)


def parse(frame: bytes | memoryview, pos: int, version: int) -> OffsetCommit:
    """The request whose body starts at `pos` and ends with the frame; MalformedMessageError if there is none."""
    return parse_short(frame, pos, version) or _parse_any(frame, pos, version)


def parse_short(frame: bytes | memoryview, pos: int, version: int) -> OffsetCommit | None:
    """The same, if it is a common one, which has no tagged fields; None if `parse` has to say what it is."""
    if version < FLEXIBLE_SINCE:
        return None
    try:
        return _parse_short(bytes(frame[pos:]), by_id=version >= TOPIC_ID_SINCE)
    except (IndexError, StructError, UnicodeDecodeError):
        return None


def _parse_any(frame: bytes | memoryview, pos: int, version: int) -> OffsetCommit:
    declared = decode(OffsetCommitRequest, bytes(frame), version, pos)
    by_id = version >= TOPIC_ID_SINCE
    return OffsetCommit(
        declared.group_id,
        declared.generation_id_or_member_epoch,
        declared.member_id,
        declared.group_instance_id,
        declared.retention_time_ms,
        [
            (
                topic.topic_id if by_id else topic.name,
                [
                    AskedPartition(
                        asked.partition_index,
                        asked.committed_offset,
                        asked.committed_leader_epoch,
                        asked.committed_metadata,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in declared.topics
        ],
    )


def _parse_short(data: bytes, *, by_id: bool) -> OffsetCommit | None:
    after = data[0]
    if not 0 < after < _ONE_BYTE:
        return None
    group_id = data[1:after].decode()
    epoch, length = _unpack_epoch_length(data, after)
    if not 0 < length < _ONE_BYTE:
        return None
    pos = after + 5
    after = pos + length - 1
    member_id = data[pos:after].decode() if length > 1 else ""
    instance_id, length, pos = None, data[after], after + 1
    if length:
        if length >= _ONE_BYTE:
            return None
        after = pos + length - 1
        instance_id, pos = data[pos:after].decode(), after
    count = data[pos]
    if not 0 < count < _ONE_BYTE:
        return None
    topics = []
    pos += 1
    for _ in range(count - 1):
        if by_id:
            after = pos + 16
            key: TopicKey = topic_id(data[pos:after])
        else:
            length = data[pos]
            if not 0 < length < _ONE_BYTE:
                return None
            after = pos + length
            key = data[pos + 1 : after].decode()
        found = _parse_partitions(data, after)
        if found is None:
            return None
        partitions, pos = found
        topics.append((key, partitions))
    if len(data) != pos + 1 or data[pos]:
        return None
    return _request((group_id, epoch, member_id, instance_id, -1, topics))


def _parse_partitions(data: bytes, pos: int) -> tuple[list[AskedPartition], int] | None:
    """The partitions of a topic, and where the next topic begins."""
    count = data[pos]
    if not 0 < count < _ONE_BYTE:
        return None
    partitions = []
    pos += 1
    for _ in range(count - 1):
        index, offset, leader_epoch, length = _unpack_partition(data, pos)
        pos += 17
        metadata = None
        if length:
            if length >= _ONE_BYTE:
                return None
            after = pos + length - 1
            metadata, pos = data[pos:after].decode() if length > 1 else "", after
        if data[pos]:
            return None
        pos += 1
        partitions.append(_partition((index, offset, leader_epoch, metadata)))
    if data[pos]:
        return None
    return partitions, pos + 1


def encode_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[AskedPartition]]],
    codes: Iterator[int],
) -> bytes:
    """The answer with its header, without the size in front: a code for each partition that was asked for, in order."""
    if len(topics) == 1 and len(topics[0][1]) == 1:
        key, ((index, _, _, _),) = topics[0]
        pack_one, before, after = _one_result_layout(version, key)
        return pack_one(correlation_id, before, index, next(codes), after)
    flexible = version >= FLEXIBLE_SINCE
    pack = _pack_flexible_result if flexible else _pack_result
    end = NO_TAGS if flexible else b""
    parts = [_CORRELATION.pack(correlation_id), end]
    if version >= THROTTLE_SINCE:
        parts.append(_ZERO_INT32)
    parts.append(encode_count(len(topics), flexible))
    for key, partitions in topics:
        parts += (encode_topic(key, flexible), encode_count(len(partitions), flexible))
        parts += [pack(asked[0], code) for asked, code in zip(partitions, codes, strict=False)]
        parts.append(end)
    parts.append(end)
    return b"".join(parts)


@lru_cache(maxsize=4096)
def _one_result_layout(version: int, topic: TopicKey) -> tuple[Callable[..., bytes], bytes, bytes]:
    """How to pack the answer about one partition at once, and the bytes before and after its result."""
    flexible = version >= FLEXIBLE_SINCE
    one = encode_count(1, flexible)
    before = NO_TAGS if flexible else b""
    before += (_ZERO_INT32 if version >= THROTTLE_SINCE else b"") + one + encode_topic(topic, flexible) + one
    after = NO_TAGS * 3 if flexible else b""
    return Struct(f">i{len(before)}sih{len(after)}s").pack, before, after
