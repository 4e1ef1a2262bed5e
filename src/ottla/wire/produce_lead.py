"""What a producer's requests have in common: everything that stands before their partitions.

Theory of operation. A producer with much to send writes the same request again and again, with a batch for each of some
partitions of a topic. Only the correlation id, the partitions and their batches change:

    api key, version | correlation id | client id, tags, transaction, acks, timeout, topic | count | partitions

So what `produce.parse` found once is compared, not parsed again (`Lead.match`), and batches are checked as they are
found (`Lead.pieces`).

What an editor must keep true: nothing is found unless every byte but the correlation id and the partitions is as it was
in a request that `parse` has understood, the partitions end where the request does, and each has exactly one batch
that may be stored as it is. So both ways find the same, and the other one is left to say what is wrong.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import Final, TypeAlias

from ottla.model.errors import ApiError, MalformedMessageError
from ottla.wire.batch import BatchHeader, check
from ottla.wire.fields import NO_TAGS, TopicKey, encode_count, encode_topic
from ottla.wire.headers import request_header_fields
from ottla.wire.produce import (
    FLEXIBLE_SINCE,
    PARTITIONS_INLINE_MAX,
    VERSION_MAX,
    VERSION_MIN,
    parse_few,
    topic_start,
    unpack_index_length,
    unpack_index_size,
)
from ottla.wire.varint import read_unsigned

_compiled: type[Requests] | None
try:
    from ottla.wire.produced import Requests

    _compiled = Requests
except ImportError:
    _compiled = None

Piece: TypeAlias = tuple[int, memoryview, BatchHeader]
"""Index of the partition, its batch, and the batch's header."""

_HEAD_BYTES: Final = 4
_CORRELATION_END: Final = 8
_COMMON_BYTES_MAX: Final = 4096
"""Kept for each connection, and compared with each of its requests; tagged fields may be as long as a request."""
_I32: Final = Struct(">i")
_ACKS_TIMEOUT: Final = Struct(">hi")
_NO_TRANSACTION: Final = (b"\xff\xff", b"\x00")
_ONE_TOPIC: Final = (encode_count(1, False), NO_TAGS + encode_count(1, True))
"""In the classic dialect and in the flexible one, where the response's header ends with tagged fields."""


class Lead:
    """Requests of one client for one topic, with the same acks and timeout."""

    __slots__ = (
        "_answer_end",
        "_common",
        "_head",
        "_is_flexible",
        "_partitions_at",
        "_unpack",
        "acks",
        "requests",
        "timeout_ms",
        "topic",
        "version",
    )

    def __init__(self, version: int, acks: int, timeout_ms: int, topic: TopicKey, head: bytes, common: bytes) -> None:
        self.version = version
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        self._head = head
        self._common = common
        self._is_flexible = version >= FLEXIBLE_SINCE
        layout = Struct(f">{_HEAD_BYTES}si{len(common)}s")
        self._unpack = layout.unpack_from
        self._partitions_at = layout.size
        tags = NO_TAGS if self._is_flexible else b""
        self._answer_end = tags + _I32.pack(0) + tags
        """Of the topic, how long the client is throttled, of the response."""
        self.requests: Requests | None = None
        """The same for compiled code, where there is such."""
        if _compiled is not None:
            begin = _ONE_TOPIC[self._is_flexible]
            self.requests = _compiled(self, head, common, begin, self._answer_end, self._is_flexible)

    def match(self, frame: memoryview) -> int | None:
        """The correlation id of a request that has this in common with others; None of any other."""
        if len(frame) < self._partitions_at:
            return None
        head, correlation_id, common = self._unpack(frame)
        return correlation_id if head == self._head and common == self._common else None

    def pieces(self, frame: memoryview) -> list[Piece] | None:
        """What a request that matches brings; None if it is not well-formed, or a batch may not be stored as it is."""
        try:
            return (_read_flexible if self._is_flexible else _read_classic)(frame, self._partitions_at)
        except (StructError, IndexError, ApiError, MalformedMessageError):
            return None

    def answer(self, correlation_id: int, outcomes: list[bytes]) -> bytes:
        """What `encode_response` makes of outcomes that `stored_layout` has packed."""
        start = topic_start(self.topic, len(outcomes), self._is_flexible)
        begin = _I32.pack(correlation_id) + _ONE_TOPIC[self._is_flexible]
        return b"".join((begin, start, *outcomes, self._answer_end))


def lead_of(frame: memoryview) -> Lead | None:
    """What requests like this one have in common; None if it is in a transaction, or not of exactly one topic."""
    try:
        _, version, _, _, position = request_header_fields(frame)
        if not VERSION_MIN <= version <= VERSION_MAX:
            return None
        request = parse_few(frame, position, version, PARTITIONS_INLINE_MAX)
    except MalformedMessageError:
        return None
    if request is None:
        return None
    transactional_id, acks, timeout_ms, topics = request
    if transactional_id is not None or len(topics) != 1:
        return None
    topic, is_flexible = topics[0][0], version >= FLEXIBLE_SINCE
    begin = _NO_TRANSACTION[is_flexible] + _ACKS_TIMEOUT.pack(acks, timeout_ms)
    begin += encode_count(1, is_flexible) + encode_topic(topic, is_flexible)
    end = position + len(begin)
    if end > _COMMON_BYTES_MAX or frame[position:end] != begin:
        return None  # It is very long, or written in another way, of which there are some for a number.
    return Lead(version, acks, timeout_ms, topic, bytes(frame[:_HEAD_BYTES]), bytes(frame[_CORRELATION_END:end]))


def _read_flexible(frame: memoryview, pos: int) -> list[Piece] | None:
    count = frame[pos]
    pos += 1
    if count >= 0x80:
        count, pos = read_unsigned(frame, pos - 1)
    end = len(frame) - 2
    if not 0 < count <= PARTITIONS_INLINE_MAX or end < pos or frame[end] or frame[end + 1]:
        return None
    pieces: list[Piece] = []
    for _ in range(count - 1):
        index, low, middle, high = unpack_index_length(frame, pos)
        if low >= 0x80 and middle < 0x80:  # A batch of up to 16 kB.
            pos += 6
            after = pos - 1 + (low & 0x7F | middle << 7)
        elif low >= 0x80 and high < 0x80:  # Up to 2 MB.
            pos += 7
            after = pos - 1 + (low & 0x7F | (middle & 0x7F) << 7 | high << 14)
        else:
            length, pos = read_unsigned(frame, pos + 4)
            after = pos + length - 1
        if after >= end or frame[after]:
            return None
        batch = frame[pos:after]
        pieces.append((index, batch, check(batch)))
        pos = after + 1
    return pieces if pos == end else None


def _read_classic(frame: memoryview, pos: int) -> list[Piece] | None:
    count, end = int.from_bytes(frame[pos : pos + 4]), len(frame)
    pos += 4
    if count > PARTITIONS_INLINE_MAX:
        return None
    pieces: list[Piece] = []
    for _ in range(count):
        index, size = unpack_index_size(frame, pos)
        pos += 8
        if not 0 < size <= end - pos:
            return None
        batch = frame[pos : pos + size]
        pieces.append((index, batch, check(batch)))
        pos += size
    return pieces if pos == end else None
