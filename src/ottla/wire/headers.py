"""The few bytes before every request and every response.

Which header a message has follows from its api and version: flexible versions end their header with tagged fields.
The one exception is the ApiVersions response, whose header never has them, because the client does not know yet what
the broker speaks.

Frames here are without their four bytes of size.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.model.errors import MalformedMessageError
from ottla.wire.schema import Message, encode
from ottla.wire.schema_source import skip_tags

if TYPE_CHECKING:
    from collections.abc import Mapping

API_VERSIONS_KEY: Final = 18

FLEXIBLE_SINCE: Final[Mapping[int, int]] = {
    0: 9,
    1: 12,
    2: 6,
    3: 9,
    8: 8,
    9: 6,
    10: 3,
    11: 6,
    12: 4,
    13: 4,
    14: 4,
    15: 5,
    16: 3,
    18: 3,
    19: 5,
    20: 4,
    21: 2,
    22: 2,
    23: 4,
    24: 3,
    25: 3,
    26: 3,
    27: 1,
    28: 3,
    32: 4,
    44: 1,
    48: 1,
    49: 1,
    53: 1,
    54: 1,
    **dict.fromkeys((29, 30, 31, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43), 2),
    **dict.fromkeys((45, 46, 50, 51, 52, *range(55, 93)), 0),
}
"""The first flexible version of each of Kafka's apis by key; those that are missing have none."""

_NEVER: Final = 1 << 15
_REQUEST: Final = Struct(">hhih")
_unpack_request: Final = _REQUEST.unpack_from
_RESPONSE: Final = Struct(">i")
_RESPONSE_FLEXIBLE: Final = Struct(">ix")


class RequestHeader(NamedTuple):
    """What a request says about itself, and where its body begins."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def parse_request_header(frame: bytes | bytearray | memoryview, position: int = 0) -> RequestHeader:
    """The header that begins at `position`; MalformedMessageError if there is none."""
    return RequestHeader(*request_header_fields(frame, position))


def request_header_fields(
    frame: bytes | bytearray | memoryview, position: int = 0
) -> tuple[int, int, int, str | None, int]:
    """The fields of a `RequestHeader`, for those who parse one with each request."""
    try:
        api_key, api_version, correlation_id, length = _unpack_request(frame, position)
        position += 10
        client_id = None
        if length >= 0:
            client_id = str(frame[position : position + length], "utf-8")
            position += length
        if api_version >= FLEXIBLE_SINCE.get(api_key, _NEVER):
            tags = frame[position]
            position += 1
            if tags:
                position = skip_tags(frame, position, tags, len(frame))
    except (StructError, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"the request header ends early or holds no text: {error}") from error
    if position > len(frame):
        raise MalformedMessageError(f"the request header ends at byte {position} of {len(frame)}")
    return api_key, api_version, correlation_id, client_id, position


def request_header(api_key: int, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The bytes of a request's header."""
    raw = b"" if client_id is None else client_id.encode()
    fixed = _REQUEST.pack(api_key, api_version, correlation_id, -1 if client_id is None else len(raw))
    return fixed + raw + b"\0" if api_version >= FLEXIBLE_SINCE.get(api_key, _NEVER) else fixed + raw


def response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    """The bytes of a response's header."""
    if api_version >= FLEXIBLE_SINCE.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
        return _RESPONSE_FLEXIBLE.pack(correlation_id)
    return _RESPONSE.pack(correlation_id)


def parse_response_header(
    api_key: int, api_version: int, frame: bytes | bytearray | memoryview, position: int = 0
) -> tuple[int, int]:
    """The correlation id, and where the body begins."""
    try:
        (correlation_id,) = _RESPONSE.unpack_from(frame, position)
        position += 4
        if api_version >= FLEXIBLE_SINCE.get(api_key, _NEVER) and api_key != API_VERSIONS_KEY:
            tags = frame[position]
            position += 1
            if tags:
                position = skip_tags(frame, position, tags, len(frame))
    except (StructError, IndexError) as error:
        raise MalformedMessageError(f"the response header ends early: {error}") from error
    return correlation_id, position


def encode_request(message: Message, api_version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request with its header."""
    return encode(message, api_version, request_header(_api_key(message), api_version, correlation_id, client_id))


def encode_response(message: Message, api_version: int, correlation_id: int) -> bytes:
    """A response with its header."""
    return encode(message, api_version, response_header(_api_key(message), api_version, correlation_id))


def _api_key(message: Message) -> int:
    schema = message.__schema__
    if schema is None or schema.api_key is None:
        raise TypeError(f"{type(message).__name__} is neither a request nor a response")
    return schema.api_key
