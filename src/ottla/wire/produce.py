"""Produce, versions 3 to 13, as a broker sees it: `parse` the request, `encode_response`.

Theory of operation. A request of one record is the most frequent message there is, so this file trades some length for
speed. Record bytes are never copied: each partition gets a view of the frame, and may be written to in place.

A request for one partition has all its counts, and mostly its lengths, in single bytes at known places. `parse_one`
reads it with three calls and gives up (None) at the slightest doubt; `parse` then starts anew and knows every case.

Lengths are not compared with the frame's end one by one: each field is followed by another one, so a length that leads
out of the frame ends in an IndexError or a struct error at the next field, or in the check that the last field ends
with the frame; all are turned into MalformedMessageError in one place. What an editor must keep true: nothing is used
before the field after it was read, no position ever moves backwards (lengths below zero are refused), and counts are
bounded before their loops.

An answer for one partition without an error, again the most frequent one, is a single `Struct.pack` around bytes that
depend on the version and topic alone; these are kept (`_one_partition_layout`).

Dialects: flexible from 9 on. Topics go by id in 13. Version 5 adds the log start offset, 8 the record errors and the
error message, 10 the current leader and the endpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias

from ottla.model.errors import MalformedMessageError
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
    encode_string,
    encode_tags,
    encode_topic,
    skip_tags,
    topic_id,
)
from ottla.wire.varint import read_unsigned

VERSION_MIN: Final = 3
VERSION_MAX: Final = 13
FLEXIBLE_SINCE: Final = 9
TOPIC_ID_SINCE: Final = 13
LOG_START_OFFSET_SINCE: Final = 5
RECORD_ERRORS_SINCE: Final = 8
CURRENT_LEADER_SINCE: Final = 10

CURRENT_LEADER_TAG: Final = 0

PARTITIONS_INLINE_MAX: Final = 512
"""A request of more topics and partitions is parsed in a thread, and served in turns."""

_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_ACKS_TIMEOUT: Final = Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = Struct(">hii")
_INDEX_SIZE: Final = Struct(">ii")
_INDEX_ERROR: Final = Struct(">ih")
_OUTCOME_V3: Final = Struct(">ihqq")
_OUTCOME: Final = Struct(">ihqqq")
_PARTITION_BYTES_MIN: Final = 9
"""Count, index, length of the records and the tagged fields of partition, topic and request."""
_NO_RECORD_ERRORS_CLASSIC: Final = b"\x00\x00\x00\x00\xff\xff"
_NO_RECORD_ERRORS_FLEXIBLE: Final = b"\x01\x00"

_unpack_start = Struct(">BhiBB").unpack_from
_unpack_partition_start = Struct(">BiBBB").unpack_from
_unpack_start_classic = Struct(">hhiih").unpack_from
_unpack_partition_start_classic = Struct(">iii").unpack_from
unpack_index_length = Struct(">iBBB").unpack_from
_unpack_acks_timeout = _ACKS_TIMEOUT.unpack_from
unpack_index_size = _INDEX_SIZE.unpack_from


class ProduceRequest(NamedTuple):
    """What a producer sent; the views lead into the frame."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]]


class ProducedPartition(NamedTuple):
    """What became of one partition's batch. `record_errors` are pairs of a record's index and a message."""

    index: int  # type: ignore[assignment]  # tuple.index is not missed
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: CurrentLeader | None = None


_new_request: Callable[[tuple[object, ...]], ProduceRequest] = partial(tuple.__new__, ProduceRequest)

OnePartition: TypeAlias = tuple[int, int, TopicKey, int, memoryview]
"""acks, timeout, topic, index of the partition, records."""


class _TooManyError(MalformedMessageError):
    """A request announces more topics and partitions than are wanted of it."""


def parse(
    frame: memoryview, pos: int, version: int, partitions_max: int = PARTITIONS_PER_REQUEST_MAX
) -> ProduceRequest:
    """The request whose body starts at `pos` and ends with the frame."""
    try:
        if version >= FLEXIBLE_SINCE:
            return _parse_flexible(frame, pos, partitions_max, by_id=version >= TOPIC_ID_SINCE)
        return _parse_classic(frame, pos, partitions_max)
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"Produce {version}: {error}") from None


def parse_few(frame: memoryview, pos: int, version: int, partitions_max: int) -> ProduceRequest | None:
    """What `parse` finds; None, and soon, in a request of more topics and partitions than that."""
    try:
        return parse(frame, pos, version, partitions_max)
    except _TooManyError:
        return None


def parse_one(frame: memoryview, pos: int, version: int) -> OnePartition | None:
    """What `parse` would find in a request without transaction or tagged fields, of one partition; None in any other.

    In a flexible version, None for records of 2 MB and more, too.
    """
    try:
        if version >= FLEXIBLE_SINCE:
            return _parse_one_flexible(frame, pos, version)
        return _parse_one_classic(frame, pos)
    except (IndexError, StructError, UnicodeDecodeError):
        return None  # The other way says what is wrong.


def _parse_one_flexible(frame: memoryview, pos: int, version: int) -> OnePartition | None:
    no_transaction, acks, timeout_ms, topic_count, name_length = _unpack_start(frame, pos)
    if no_transaction or topic_count != 2:
        return None
    if version >= TOPIC_ID_SINCE:
        after = pos + 24
        topic: TopicKey = topic_id(bytes(frame[pos + 8 : after]))
    elif 0 < name_length < 0x80:
        after = pos + 8 + name_length
        topic = str(frame[pos + 9 : after], "utf-8")
    else:
        return None
    if len(frame) < after + _PARTITION_BYTES_MIN:
        return None
    partition_count, index, low, middle, high = _unpack_partition_start(frame, after)
    if partition_count != 2:
        return None
    if 0 < low < 0x80:
        start, end = after + 6, after + 5 + low
    elif low >= 0x80 and 0 < middle < 0x80:
        start, end = after + 7, after + 6 + (low & 0x7F | middle << 7)
    elif low >= 0x80 and middle >= 0x80 and 0 < high < 0x80:
        start, end = after + 8, after + 7 + (low & 0x7F | (middle & 0x7F) << 7 | high << 14)
    else:
        return None
    if len(frame) != end + 3 or frame[end] or frame[end + 1] or frame[end + 2]:
        return None
    return acks, timeout_ms, topic, index, frame[start:end]


def _parse_flexible(frame: memoryview, pos: int, partitions_max: int, *, by_id: bool) -> ProduceRequest:
    transactional_id = None
    if frame[pos]:
        reader = Reader(frame, pos, flexible=True)
        transactional_id = reader.nullable_string()
        pos = reader.pos - 1
    acks, timeout_ms = _unpack_acks_timeout(frame, pos + 1)
    count, pos = read_unsigned(frame, pos + 7)
    budget = partitions_max - count
    topics = []
    for _ in range(_counted(count - 1, budget)):
        if by_id:
            topic: TopicKey = topic_id(bytes(frame[pos : pos + 16]))
            pos += 16
        else:
            length, pos = read_unsigned(frame, pos)
            after = pos + _checked(length - 1, len(frame))
            topic = str(frame[pos:after], "utf-8")
            pos = after
        count, pos = read_unsigned(frame, pos)
        budget -= count
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(_counted(count - 1, budget)):
            index, low, middle, high = unpack_index_length(frame, pos)
            if low >= 0x80 and middle < 0x80:  # A batch of up to 16 kB.
                length, pos = low & 0x7F | middle << 7, pos + 6
            elif low >= 0x80 and high < 0x80:  # Up to 2 MB.
                length, pos = low & 0x7F | (middle & 0x7F) << 7 | high << 14, pos + 7
            else:
                length, pos = read_unsigned(frame, pos + 4)
            if length:
                after = pos + length - 1
                partitions.append((index, frame[pos:after]))
            else:
                after = pos
                partitions.append((index, None))
            pos = skip_tags(frame, after) if frame[after] else after + 1
        topics.append((topic, partitions))
        pos = skip_tags(frame, pos) if frame[pos] else pos + 1
    pos = skip_tags(frame, pos) if frame[pos] else pos + 1
    if pos != len(frame):
        raise MalformedMessageError(f"{len(frame) - pos} bytes after the end of the Produce request")
    return _new_request((transactional_id, acks, timeout_ms, topics))


def _parse_one_classic(frame: memoryview, pos: int) -> OnePartition | None:
    if len(frame) < pos + 14:
        return None
    transactional, acks, timeout_ms, topic_count, name_length = _unpack_start_classic(frame, pos)
    after = pos + 14 + name_length
    if transactional != -1 or topic_count != 1 or name_length < 0 or len(frame) < after + 12:
        return None
    partition_count, index, size = _unpack_partition_start_classic(frame, after)
    if partition_count != 1 or size < 0 or len(frame) != after + 12 + size:
        return None
    topic = str(frame[pos + 14 : after], "utf-8")
    return acks, timeout_ms, topic, index, frame[after + 12 :]


def _parse_classic(frame: memoryview, pos: int, partitions_max: int) -> ProduceRequest:
    reader = Reader(frame, pos, flexible=False)
    transactional_id = reader.nullable_string()
    acks, timeout_ms, count = reader.unpack(_ACKS_TIMEOUT_COUNT)
    budget = partitions_max - count
    topics: list[tuple[TopicKey, list[tuple[int, memoryview | None]]]] = []
    for _ in range(_counted(count, budget)):
        topic = reader.string()
        count = reader.int32()
        budget -= count
        pos = reader.pos
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(_counted(count, budget)):
            index, size = unpack_index_size(frame, pos)
            pos += 8
            if size == -1:
                partitions.append((index, None))
                continue
            after = pos + _checked(size, len(frame) - pos - size)
            partitions.append((index, frame[pos:after]))
            pos = after
        reader.pos = pos
        topics.append((topic, partitions))
    reader.finish()
    return _new_request((transactional_id, acks, timeout_ms, topics))


def _counted(count: int, budget: int) -> int:
    """`count`, unless it is below zero or more than was left of those that there may be."""
    if count < 0:
        raise MalformedMessageError(f"a count of {count} in a Produce request")
    if budget < 0:
        raise _TooManyError(f"{count} more topics or partitions in a Produce request are too many")
    return count


def _checked(count: int, room: int) -> int:
    """`count`, unless it is below zero or the room that would be left with it is."""
    if count < 0 or room < 0:
        raise MalformedMessageError(f"a length of {count} in a Produce request")
    return count


def encode_response(
    version: int,
    correlation_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[bytes | ProducedPartition]]],
    throttle_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The answer with its header, without the size in front. What is bytes already, `stored_layout` has packed."""
    flexible = version >= FLEXIBLE_SINCE
    parts = [_I32.pack(correlation_id), _topics_start(len(topics), flexible)]
    for topic, partitions in topics:
        parts.append(topic_start(topic, len(partitions), flexible))
        parts += [
            partition if type(partition) is bytes else _encode_partition(version, partition)  # type: ignore[arg-type]
            for partition in partitions
        ]
        if flexible:
            parts.append(NO_TAGS)
    parts.append(_I32.pack(throttle_ms))
    if node_endpoints and version >= CURRENT_LEADER_SINCE:
        parts.append(encode_node_endpoints(node_endpoints))
    elif flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)


@lru_cache(maxsize=64)
def _topics_start(count: int, flexible: bool) -> bytes:
    """The end of the response's header, and how many topics there are."""
    return (NO_TAGS if flexible else b"") + encode_count(count, flexible)


@lru_cache(maxsize=4096)
def topic_start(topic: TopicKey, count: int, flexible: bool) -> bytes:
    """The topic, and how many partitions follow: the same in a request and in its answer."""
    return encode_topic(topic, flexible) + encode_count(count, flexible)


def encode_one(
    version: int,
    correlation_id: int,
    topic: TopicKey,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_ms: int = 0,
) -> bytes:
    """The answer to a request of one partition whose batch was stored."""
    pack, before, after, end = _one_partition_layout(version, topic)
    if version < LOG_START_OFFSET_SINCE:
        return pack(correlation_id, before, index, 0, base_offset, log_append_time_ms, after, throttle_ms, end)
    return pack(
        correlation_id, before, index, 0, base_offset, log_append_time_ms, log_start_offset, after, throttle_ms, end
    )


def answer_layout(version: int, topic: TopicKey, index: int) -> tuple[Callable[..., bytes], int, bytes, bytes]:
    """What `encode_one` does, with the answer's size in front, for who answers for one partition again and again.

    From version 5 on. Pack takes the size, correlation id, the bytes before, base offset, append time, log start
    offset, and the bytes after.
    """
    _, before, after, end = _one_partition_layout(version, topic)
    before += _INDEX_ERROR.pack(index, 0)
    after += _I32.pack(0) + end
    layout = Struct(f">ii{len(before)}sqqq{len(after)}s")
    return layout.pack, layout.size - 4, before, after


@cache
def stored_layout(version: int) -> tuple[Callable[..., bytes], bytes]:
    """How to pack the outcome of a partition whose batch was stored, and the bytes at its end.

    Pack takes the index, 0, base offset, append time, log start offset, and those bytes.
    """
    rest = _encode_errors(version, (), None) + (NO_TAGS if version >= FLEXIBLE_SINCE else b"")
    if version >= LOG_START_OFFSET_SINCE:
        return Struct(f">ihqqq{len(rest)}s").pack, rest
    return lambda index, error, base, time_ms, _start, _rest: _OUTCOME_V3.pack(index, error, base, time_ms), rest


@lru_cache(maxsize=4096)
def _one_partition_layout(version: int, topic: TopicKey) -> tuple[Callable[..., bytes], bytes, bytes, bytes]:
    """How to pack the whole answer at once, and the bytes before, after and at the end that never change."""
    flexible = version >= FLEXIBLE_SINCE
    one = encode_count(1, flexible)
    before = (NO_TAGS if flexible else b"") + one + encode_topic(topic, flexible) + one
    after = _encode_errors(version, (), None) + (NO_TAGS + NO_TAGS if flexible else b"")
    end = NO_TAGS if flexible else b""
    outcome = "ihqqq" if version >= LOG_START_OFFSET_SINCE else "ihqq"
    layout = Struct(f">i{len(before)}s{outcome}{len(after)}si{len(end)}s")
    return layout.pack, before, after, end


def _encode_partition(version: int, partition: ProducedPartition) -> bytes:
    index, error_code, base_offset, append_time, start_offset, errors, message, leader = partition
    if version >= LOG_START_OFFSET_SINCE:
        outcome = _OUTCOME.pack(index, error_code, base_offset, append_time, start_offset)
    else:
        outcome = _OUTCOME_V3.pack(index, error_code, base_offset, append_time)
    outcome += _encode_errors(version, errors, message)
    if version < FLEXIBLE_SINCE:
        return outcome
    if leader is None or version < CURRENT_LEADER_SINCE:
        return outcome + NO_TAGS
    return outcome + encode_tags((CURRENT_LEADER_TAG, encode_current_leader(leader)))


def _encode_errors(version: int, errors: Sequence[tuple[int, str | None]], message: str | None) -> bytes:
    if version < RECORD_ERRORS_SINCE:
        return b""
    flexible = version >= FLEXIBLE_SINCE
    if not errors and message is None:
        return _NO_RECORD_ERRORS_FLEXIBLE if flexible else _NO_RECORD_ERRORS_CLASSIC
    parts = [encode_count(len(errors), flexible)]
    for record_index, record_message in errors:
        parts += (_I32.pack(record_index), encode_string(record_message, flexible), NO_TAGS if flexible else b"")
    parts.append(encode_string(message, flexible))
    return b"".join(parts)
