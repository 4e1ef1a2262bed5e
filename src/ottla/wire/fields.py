"""Single fields of a message, for the codecs that are written by hand (Produce, Fetch, OffsetCommit).

Messages come in two dialects. Classic ones put a fixed-size length in front of strings, bytes and arrays, -1 for null.
Flexible ones use an unsigned varint of length + 1, 0 for null, and end each structure with tagged fields.

`Reader` walks through the parts that are not worth a hand-tuned loop. It raises MalformedMessageError on every length
that is negative where it may not be, or leads out of the message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from ottla.model.errors import MalformedMessageError
from ottla.wire.varint import read_unsigned, unsigned

TopicKey: TypeAlias = str | UUID
"""How a request names a topic: by name, or in newer versions by id."""

PARTITIONS_PER_REQUEST_MAX: Final = 250_000
"""Partitions and topics in one Produce or Fetch. A frame of 100 MB could name 16 million, and fill memory with them."""
TAGGED_FIELDS_MAX: Final = 64
"""Tagged fields of one structure. Kafka has three at most; one costs a client two bytes, and the broker a loop."""

NO_TAGS: Final = b"\x00"

_TOPIC_IDS_MAX: Final = 16_384
_UUID_BYTES: Final = 16
_I8: Final = Struct(">b")
_I16: Final = Struct(">h")
_I32: Final = Struct(">i")
_I64: Final = Struct(">q")
_CLASSIC_NULL_STRING: Final = b"\xff\xff"
_T = TypeVar("_T")

NODE_ENDPOINTS_TAG: Final = 0

_LEADER: Final = Struct(">ii")

_topic_ids: Final[dict[bytes, UUID]] = {}


def topic_id(raw: bytes) -> UUID:
    """The id made of 16 bytes. Making one is slow, so those seen of late are kept."""
    known = _topic_ids.get(raw)
    if known is not None:
        return known
    if len(raw) != _UUID_BYTES:
        raise MalformedMessageError("the message ends inside a topic id")
    if len(_topic_ids) >= _TOPIC_IDS_MAX:
        _topic_ids.clear()
    made = _topic_ids[raw] = UUID(bytes=raw)
    return made


def encode_string(value: str | None, flexible: bool) -> bytes:
    if value is None:
        return NO_TAGS if flexible else _CLASSIC_NULL_STRING
    encoded = value.encode()
    return (unsigned(len(encoded) + 1) if flexible else _I16.pack(len(encoded))) + encoded


def encode_count(count: int, flexible: bool) -> bytes:
    """The length of an array or of bytes."""
    return unsigned(count + 1) if flexible else _I32.pack(count)


def encode_topic(topic: TopicKey, flexible: bool) -> bytes:
    return topic.bytes if isinstance(topic, UUID) else encode_string(topic, flexible)


def encode_tags(*fields: tuple[int, bytes]) -> bytes:
    """The tagged fields that end a flexible structure, in rising order."""
    encoded = [unsigned(len(fields))]
    for tag, content in fields:
        encoded += (unsigned(tag), unsigned(len(content)), content)
    return b"".join(encoded)


def skip_tags(buf: memoryview, pos: int) -> int:
    """The position after the tagged fields at `pos`."""
    reader = Reader(buf, pos, flexible=True)
    reader.skip_tags()
    return reader.pos


class CurrentLeader(NamedTuple):
    """Who leads the partition instead."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Where a leader named in the answer is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def encode_current_leader(leader: CurrentLeader) -> bytes:
    return _LEADER.pack(*leader) + NO_TAGS


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields of an answer: where the leaders that it names are reached."""
    if not endpoints:
        return NO_TAGS
    parts = [unsigned(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (_I32.pack(node_id), encode_string(host, True), _I32.pack(port), encode_string(rack, True), NO_TAGS)
    return encode_tags((NODE_ENDPOINTS_TAG, b"".join(parts)))


class Reader:
    """Reads fields from `pos` on; every step is checked against the end of the buffer."""

    __slots__ = ("buf", "flexible", "pos")

    def __init__(self, buf: memoryview, pos: int, flexible: bool) -> None:
        self.buf = buf
        self.pos = pos
        self.flexible = flexible

    def unpack(self, layout: Struct) -> tuple[int, ...]:
        try:
            fields = layout.unpack_from(self.buf, self.pos)
        except StructError:
            raise self._truncated() from None
        self.pos += layout.size
        return fields

    def int8(self) -> int:
        return self.unpack(_I8)[0]

    def int16(self) -> int:
        return self.unpack(_I16)[0]

    def int32(self) -> int:
        return self.unpack(_I32)[0]

    def int64(self) -> int:
        return self.unpack(_I64)[0]

    def unsigned(self) -> int:
        try:
            value = self.buf[self.pos]
            if value < 0x80:
                self.pos += 1
            else:
                value, self.pos = read_unsigned(self.buf, self.pos)
        except IndexError:
            raise self._truncated() from None
        return value

    def take(self, size: int) -> memoryview:
        """The next `size` bytes, in place."""
        after = self.pos + size
        if after > len(self.buf):
            raise self._truncated()
        taken = self.buf[self.pos : after]
        self.pos = after
        return taken

    def uuid(self) -> UUID:
        return topic_id(bytes(self.take(_UUID_BYTES)))

    def topic(self, by_id: bool) -> TopicKey:
        return self.uuid() if by_id else self.string()

    def nullable_string(self) -> str | None:
        length = self.unsigned() - 1 if self.flexible else self.int16()
        if self._is_null(length):
            return None
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError:
            raise MalformedMessageError(f"the string that ends at byte {self.pos} is not UTF-8") from None

    def string(self) -> str:
        return self._not_null(self.nullable_string())

    def nullable_bytes(self) -> memoryview | None:
        length = self.unsigned() - 1 if self.flexible else self.int32()
        return None if self._is_null(length) else self.take(length)

    def nullable_array(self, read: Callable[[Reader], _T]) -> list[_T] | None:
        """An array whose elements take a byte at least."""
        count = self.unsigned() - 1 if self.flexible else self.int32()
        if self._is_null(count):
            return None
        if count > len(self.buf) - self.pos:
            raise MalformedMessageError(f"an array of {count} elements in {len(self.buf) - self.pos} bytes")
        return [read(self) for _ in range(count)]

    def array(self, read: Callable[[Reader], _T]) -> list[_T]:
        return self._not_null(self.nullable_array(read))

    def tags(self) -> Iterator[tuple[int, Reader]]:
        """Each tagged field of a flexible structure, with a reader of its own content."""
        if not self.flexible:
            return
        count = self.unsigned()
        if count > TAGGED_FIELDS_MAX:
            raise MalformedMessageError(f"{count} tagged fields before byte {self.pos}")
        for _ in range(count):
            tag, size = self.unsigned(), self.unsigned()
            yield tag, Reader(self.take(size), 0, flexible=True)

    def current_leader(self) -> CurrentLeader:
        leader = CurrentLeader(self.int32(), self.int32())
        self.skip_tags()
        return leader

    def node_endpoints(self) -> list[NodeEndpoint]:
        return self.array(Reader._node_endpoint)

    def _node_endpoint(self) -> NodeEndpoint:
        endpoint = NodeEndpoint(self.int32(), self.string(), self.int32(), self.nullable_string())
        self.skip_tags()
        return endpoint

    def skip_tags(self) -> None:
        if self.has_tags():
            for _ in self.tags():
                pass

    def has_tags(self) -> bool:
        """Whether tagged fields come next, which `tags` reads; where there are none that is passed over."""
        if not self.flexible:
            return False
        if self.pos < len(self.buf) and self.buf[self.pos] == 0:
            self.pos += 1
            return False
        return True

    def finish(self) -> None:
        """Nothing may follow."""
        if self.pos != len(self.buf):
            raise MalformedMessageError(f"{len(self.buf) - self.pos} bytes after the end of the message")

    def _is_null(self, length: int) -> bool:
        if length < -1:
            raise MalformedMessageError(f"a length of {length} at byte {self.pos}")
        return length == -1

    def _not_null(self, value: _T | None) -> _T:
        if value is None:
            raise MalformedMessageError(f"null before byte {self.pos}, where there must be something")
        return value

    def _truncated(self) -> MalformedMessageError:
        return MalformedMessageError(f"the message ends inside the field at byte {self.pos}")
