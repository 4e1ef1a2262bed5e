"""What the broker and its record worker say to each other.

A frame is a length (u32) and a message in MessagePack. Requests carry a number, replies the number of their request. A
quick request (`Validate`, `Recompress`) has one reply, in the order of requests. `Compact` runs beside them: it reports
progress and finished groups until its one last reply.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

import msgspec

from ottla.log.compaction import CleanedGroup, CompactionJob, CompactionResult

LENGTH: Final = Struct(">I")
FRAME_BYTES_MAX: Final = 1 << 30


class Validate(msgspec.Struct, tag=0, array_like=True):
    id: int
    batch: bytes
    requires_keys: bool
    timestamp_range: tuple[int, int] | None


class Recompress(msgspec.Struct, tag=1, array_like=True):
    id: int
    batch: bytes
    codec: int
    level: int | None
    batch_bytes_max: int


class Compact(msgspec.Struct, tag=2, array_like=True):
    id: int
    job: CompactionJob


class Cancel(msgspec.Struct, tag=3, array_like=True):
    """End a compaction; it still has its last reply."""

    id: int


class Warm(msgspec.Struct, tag=4, array_like=True):
    """Load the compiled code, or compile it."""

    id: int


class Validated(msgspec.Struct, tag=0, array_like=True):
    """The batch may be appended: as it is (None), or as it comes back."""

    id: int
    corrected: bytes | None


class Recompressed(msgspec.Struct, tag=1, array_like=True):
    id: int
    batch: bytes


class Progress(msgspec.Struct, tag=2, array_like=True):
    id: int


class GroupCleaned(msgspec.Struct, tag=3, array_like=True):
    id: int
    group: CleanedGroup


class Compacted(msgspec.Struct, tag=4, array_like=True):
    id: int
    result: CompactionResult


class Refused(msgspec.Struct, tag=5, array_like=True):
    """The job met an error that a client may see."""

    id: int
    code: int
    message: str
    record_errors: list[tuple[int, str]] = []
    """The records at fault, where it is single ones."""


class Failed(msgspec.Struct, tag=6, array_like=True):
    """The job met another error."""

    id: int
    message: str
    is_corrupt_log: bool = False


class Warmed(msgspec.Struct, tag=7, array_like=True):
    id: int


Request: TypeAlias = Validate | Recompress | Compact | Cancel | Warm
Reply: TypeAlias = Validated | Recompressed | Progress | GroupCleaned | Compacted | Refused | Failed | Warmed

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)
_replies: Final[msgspec.msgpack.Decoder[Reply]] = msgspec.msgpack.Decoder(Reply)


def encode(message: Request | Reply) -> bytearray:
    """A whole frame."""
    frame = bytearray(LENGTH.size)
    _encoder.encode_into(message, frame, LENGTH.size)
    LENGTH.pack_into(frame, 0, len(frame) - LENGTH.size)
    return frame


def decode_request(body: bytes) -> Request:
    return _requests.decode(body)


def decode_reply(body: bytes) -> Reply:
    return _replies.decode(body)
