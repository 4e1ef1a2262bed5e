"""Messages as classes: declared once for all versions, read and written by functions compiled at first use.

    class CreatableTopic(Message):
        name: String
        num_partitions: Int32
        configs: Sequence[CreatableTopicConfig] = []

    class CreateTopicsRequest(Message, api_key=19, versions=(2, 7), flexible_since=5):
        topics: Sequence[CreatableTopic]
        validate_only: Annotated[Bool, since(1)] = False

    request = decode(CreateTopicsRequest, frame, version)
    data = encode(CreateTopicsResponse(topics=[]), version)

Fields are sent in the order of the class body. `X | None` may be null, `Sequence[X]` is an array: any sequence is
taken, a list comes back. `since`, `until`, `nullable_since`, `tag` and `ignorable` say what differs between versions; a
field that some version lacks needs a default, which is what decoding that version gives. A class without versions is a
part of other messages and follows theirs. A class without api key is a record rather than a request.

From version `flexible_since` on, lengths are compact varints and every struct ends with tagged fields; tags that nobody
here knows are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

import msgspec

from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.wire.schema_fields import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Records,
    String,
    Uint16,
    Uint32,
    Uuid,
    ignorable,
    nullable_since,
    since,
    tag,
    until,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Bool",
    "Bytes",
    "EncodeError",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Records",
    "Schema",
    "String",
    "Uint16",
    "Uint32",
    "Uuid",
    "decode",
    "encode",
    "encode_into",
    "ignorable",
    "nullable_since",
    "since",
    "tag",
    "until",
]

M = TypeVar("M", bound="Message")


class EncodeError(OttlaError):
    """A value that does not fit its field: a mistake of ours, never of a client."""


class Schema(msgspec.Struct, frozen=True):
    """What a message class says about itself."""

    api_key: int | None
    versions: tuple[int, int]
    """The first and the last version."""
    flexible_since: int | None
    tail_ignored: bool = False
    """Whether bytes after the last field are no mistake, because clients in use send some."""

    def flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields."""
        return self.flexible_since is not None and version >= self.flexible_since


class _Decoders(dict[int, Callable[[Any, int], Any]]):
    """A class's decoders by version, compiled when first asked for."""

    def __init__(self, cls: type[Message]) -> None:
        super().__init__()
        self.cls = cls

    def __missing__(self, version: int) -> Callable[[Any, int], Any]:
        from ottla.wire.schema_decode import compile_decoder

        schema = _checked_schema(self.cls, version)
        flexible = schema.flexible(version)
        self[version] = decoder = compile_decoder(
            self.cls, version, flexible=flexible, tail_ignored=schema.tail_ignored
        )
        return decoder


class _Encoders(dict[int, Callable[[Any, list[bytes]], None]]):
    """A class's encoders by version, compiled when first asked for."""

    def __init__(self, cls: type[Message]) -> None:
        super().__init__()
        self.cls = cls

    def __missing__(self, version: int) -> Callable[[Any, list[bytes]], None]:
        from ottla.wire.schema_encode import compile_encoder

        flexible = _checked_schema(self.cls, version).flexible(version)
        self[version] = encoder = compile_encoder(self.cls, version, flexible=flexible)
        return encoder


def _checked_schema(cls: type[Message], version: int) -> Schema:
    schema = cls.__schema__
    if schema is None:
        raise TypeError(f"{cls.__name__} is a part of other messages and has no versions of its own")
    first, last = schema.versions
    if not first <= version <= last:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has versions {first} to {last}, not {version}")
    return schema


class MessageMeta(msgspec.StructMeta):
    """Takes the schema out of the class arguments; every field is keyword-only."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        api_key: int | None = None,
        versions: tuple[int, int] | None = None,
        flexible_since: int | None = None,
        tail_ignored: bool = False,
        frozen: bool = False,
    ) -> Any:
        cls: Any = super().__new__(mcs, name, bases, namespace, kw_only=True, frozen=frozen)
        cls.__schema__ = None if versions is None else Schema(api_key, versions, flexible_since, tail_ignored)
        cls.__decoders__ = _Decoders(cls)
        cls.__encoders__ = _Encoders(cls)
        return cls


@dataclass_transform(kw_only_default=True)
class Message(msgspec.Struct, metaclass=MessageMeta):
    """The base of everything that goes over the wire or into a metadata log, except record batches."""

    __schema__: ClassVar[Schema | None]
    """None for a part of other messages."""
    __decoders__: ClassVar[_Decoders]
    __encoders__: ClassVar[_Encoders]

    if TYPE_CHECKING:

        def __init_subclass__(
            cls,
            *,
            api_key: int | None = None,
            versions: tuple[int, int] | None = None,
            flexible_since: int | None = None,
            tail_ignored: bool = False,
            frozen: bool = False,
        ) -> None: ...


def decode(cls: type[M], buffer: Buffer, version: int, position: int = 0) -> M:
    """The message that fills `buffer` from `position` to its end; MalformedMessageError if that is none.

    The message holds copies: the buffer may be reused afterwards.
    """
    message: M = cls.__decoders__[version](buffer, position)
    return message


def encode(message: Message, version: int, prefix: bytes = b"") -> bytes:
    """`prefix` and the message, in one byte string."""
    parts = [prefix]
    encode_into(message, version, parts)
    return b"".join(parts)


def encode_into(message: Message, version: int, parts: list[bytes]) -> None:
    """Appends the message to `parts`, whose join is the message behind whatever was there before.

    A field that the version lacks is dropped if it is ignorable or has its default; otherwise it is an ApiError
    (UNSUPPORTED_VERSION). A value that fits no field of its kind is an EncodeError. After an error `parts` is spoilt.
    """
    try:
        type(message).__encoders__[version](message, parts)
    except (struct.error, AttributeError, TypeError, ValueError) as error:
        raise EncodeError(f"{type(message).__name__} version {version}: {error}") from error
