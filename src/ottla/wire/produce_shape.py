"""The shape of a short Produce request: where its fields are, for the next request that looks the same.

Theory of operation. A producer sends the same request again and again: only the correlation id and the records change,
and with the records their size. So what `produce.parse_one` found once need not be looked for again. A request is

    api key, version | correlation id | client id, tags | transaction, acks ... index of the partition | size | records

and three empty tagged fields where the version has such. A `RequestShape` knows how long each of these is. One call
takes a request apart; the bytes that say where the records go (`target`) are looked up by who uses this, not parsed.

What an editor must keep true: `read` finds nothing unless every byte but the correlation id, the target and the records
is as it was in a request that `parse_one` has understood, and the size is that of the records. So with a target that
was understood too, both ways find the same.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from ottla.model.errors import MalformedMessageError
from ottla.wire.batch import HEADER_BYTES
from ottla.wire.fields import NO_TAGS, TopicKey, encode_count
from ottla.wire.headers import request_header_fields
from ottla.wire.produce import FLEXIBLE_SINCE, parse_one

SHAPES_MAX: Final = 1024
_CORRELATION_END: Final = 8
"""Of api key, version and correlation id."""
_CORRELATION: Final = Struct(">i")
_TAGS: Final = NO_TAGS * 3


class RequestShape:
    """Requests of one client id in one version, with targets of one length and sizes of one width."""

    __slots__ = ("_client", "_flexible", "_head", "_records_at", "_tags_bytes", "_unpack", "version")

    def __init__(self, version: int, head: bytes, client: bytes, target_bytes: int, size_bytes: int) -> None:
        self.version = version
        self._head = head
        self._client = client
        self._flexible = version >= FLEXIBLE_SINCE
        self._tags_bytes = len(_TAGS) if self._flexible else 0
        layout = Struct(f">4si{len(client)}s{target_bytes}s{size_bytes}s")
        self._unpack = layout.unpack_from
        self._records_at = layout.size

    def read(self, view: memoryview, start: int, stop: int) -> tuple[int, bytes, memoryview] | None:
        """Correlation id, target and records of the frame that lies there; None if it has another shape."""
        records, end = start + self._records_at, stop - self._tags_bytes
        size = end - records
        if size < HEADER_BYTES:
            return None
        head, correlation_id, client, target, size_field = self._unpack(view, start)
        if (
            head != self._head
            or client != self._client
            or size_field != _size_field(size, self._flexible)
            or (self._tags_bytes and view[end:stop] != _TAGS)
        ):
            return None
        return correlation_id, target, view[records:end]

    def build(self, correlation_id: int, target: bytes, records: bytes | bytearray) -> bytes:
        """The frame of which `read` would find this."""
        size_field = _size_field(len(records), self._flexible)
        tags = _TAGS[: self._tags_bytes]
        return b"".join(
            (self._head, _CORRELATION.pack(correlation_id), self._client, target, size_field, records, tags)
        )


class Understood(NamedTuple):
    """What was found in a request, to know the next one like it."""

    shape: RequestShape
    target: bytes
    version: int
    acks: int
    timeout_ms: int
    topic: TopicKey
    index: int  # type: ignore[assignment]  # tuple.index is not missed


def understand(frame: memoryview) -> Understood | None:
    """The shape of a request that `parse_one` understands and that holds a batch; None of any other."""
    try:
        _, version, _, _, body = request_header_fields(frame)
    except MalformedMessageError:
        return None
    one = parse_one(frame, body, version)
    if one is None or len(one[4]) < HEADER_BYTES:
        return None
    acks, timeout_ms, topic, index, records = one
    flexible = version >= FLEXIBLE_SINCE
    size_bytes = len(_size_field(len(records), flexible))
    target_end = len(frame) - (len(_TAGS) if flexible else 0) - len(records) - size_bytes
    client = bytes(frame[_CORRELATION_END:body])
    shape = _shape(version, bytes(frame[:4]), client, target_end - body, size_bytes)
    return Understood(shape, bytes(frame[body:target_end]), version, acks, timeout_ms, topic, index)


@lru_cache(maxsize=SHAPES_MAX)
def _shape(version: int, head: bytes, client: bytes, target_bytes: int, size_bytes: int) -> RequestShape:
    return RequestShape(version, head, client, target_bytes, size_bytes)


@lru_cache(maxsize=4096)
def _size_field(size: int, flexible: bool) -> bytes:
    return encode_count(size, flexible)
