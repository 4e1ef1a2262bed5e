"""A Fetch of one partition that comes again but for its offset, and the answer to it.

Theory of operation. A client without fetch sessions that reads a partition sends the same bytes each time, except for
the correlation id and the offset; and the answers are alike but for the offsets in them and the size of the records. So
what `parse` and `encode_response` made of the first such request says how to read the next ones (`RepeatedRequest`) and
how to answer them (`RepeatedAnswer`), with one call of `Struct` each.

What an editor must keep true: a request is remembered only if it is as short as one for its partition can be. Then
nothing in it has tagged fields or a longer encoding than it needs, and so its offset lies where it is looked for.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from ottla.model.chunks import Chunks, FileSlice
from ottla.wire.fetch_types import (
    FLEXIBLE_SINCE,
    LEADER_EPOCH_SINCE,
    RACK_SINCE,
    REPLICA_STATE_SINCE,
    SESSION_SINCE,
    FetchPartition,
    FetchRequest,
)
from ottla.wire.fields import encode_topic
from ottla.wire.varint import unsigned

_API_AND_VERSION_BYTES: Final = 4
_CORRELATION_BYTES: Final = 4
_OFFSET_BYTES: Final = 8
_OFFSETS_BYTES: Final = 3 * _OFFSET_BYTES
"""High watermark, last stable offset and log start offset."""
_pack_size: Final = Struct(">i").pack

_Unpack: TypeAlias = Callable[[memoryview], tuple[bytes, int, bytes, int, bytes]]
_Pack: TypeAlias = Callable[[int, bytes, int, int, int, bytes], bytes]


class RepeatedRequest(NamedTuple):
    """Requests of one length for one partition, in one version."""

    frame_bytes: int
    unpack: _Unpack
    """Key and version, correlation id, what stands before the offset, the offset, and what stands behind it."""
    key_and_version: bytes
    before: bytes
    after: bytes


class RepeatedAnswer(NamedTuple):
    """Answers with records of one partition, about which there is nothing unusual to say."""

    pack: _Pack
    """Correlation id, `before`, high watermark, last stable offset, log start offset, `after`; then comes the size."""
    before: bytes
    after: bytes
    encode_size: Callable[[int], bytes]
    end: Chunks
    """What follows the records."""


def repeated_request(
    frame: memoryview, body_at: int, version: int, request: FetchRequest
) -> tuple[RepeatedRequest, FetchPartition] | None:
    """How to read requests like this one, and what it wants; None if it is not a plain one for one partition."""
    if version < SESSION_SINCE or len(request.topics) != 1 or len(request.topics[0][1]) != 1:
        return None
    topic, (asked,) = request.topics[0]
    flexible = version >= FLEXIBLE_SINCE
    topic_bytes = len(encode_topic(topic, flexible))
    offset_at = body_at + _bytes_before_topic(version) + topic_bytes + _bytes_before_offset(version)
    after_bytes = _bytes_after_offset(version)
    if len(frame) != offset_at + _OFFSET_BYTES + after_bytes:
        return None
    before_bytes = offset_at - _API_AND_VERSION_BYTES - _CORRELATION_BYTES
    layout = Struct(f">{_API_AND_VERSION_BYTES}si{before_bytes}sq{after_bytes}s")
    key_and_version, _, before, _, after = layout.unpack(frame)
    return RepeatedRequest(layout.size, layout.unpack, key_and_version, before, after), asked


def repeated_answer(chunks: Chunks, version: int) -> RepeatedAnswer | None:
    """How to answer as `chunks` do; None if that is not an answer with a slice of one file.

    The caller knows that it names no aborted transactions and has no tagged fields of its partition.
    """
    if len(chunks) not in (2, 3):
        return None
    start, records = chunks[:2]
    if not isinstance(start, bytes) or not isinstance(records, FileSlice):
        return None
    encode_size = _compact_size if version >= FLEXIBLE_SINCE else _pack_size
    after_at = len(start) - len(encode_size(records.length)) - _bytes_behind_offsets(version)
    before_end = after_at - _OFFSETS_BYTES
    before = start[_CORRELATION_BYTES:before_end]
    after = start[after_at : after_at + _bytes_behind_offsets(version)]
    layout = Struct(f">i{len(before)}sqqq{len(after)}s")
    return RepeatedAnswer(layout.pack, before, after, encode_size, chunks[2:])


def _compact_size(size: int) -> bytes:
    return unsigned(size + 1)


def _bytes_before_topic(version: int) -> int:
    """From the replica or the wait on, up to the number of topics."""
    if version < FLEXIBLE_SINCE:
        return 25 + 4
    return (21 if version >= REPLICA_STATE_SINCE else 25) + 1


def _bytes_before_offset(version: int) -> int:
    """The number of partitions, the partition and its leader epoch."""
    if version < LEADER_EPOCH_SINCE:
        return 4 + 4
    return (1 if version >= FLEXIBLE_SINCE else 4) + 4 + 4


def _bytes_after_offset(version: int) -> int:
    """The rest of the partition, nothing forgotten, no rack and no tagged fields."""
    if version >= FLEXIBLE_SINCE:
        return 4 + 8 + 4 + 1 + 1 + 1 + 1 + 1
    return 8 + 4 + 4 + (2 if version >= RACK_SINCE else 0)


def _bytes_behind_offsets(version: int) -> int:
    """Aborted transactions, of which there are none, and the preferred replica."""
    if version >= FLEXIBLE_SINCE:
        return 1 + 4
    return 4 + (4 if version >= RACK_SINCE else 0)
