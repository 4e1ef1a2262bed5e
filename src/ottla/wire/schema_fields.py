"""How a message class says what its fields look like on the wire, and how that is read back for one version.

A field's annotation carries its wire type and its limits: `Annotated[String | None, since(3), ignorable]`. `fields_of`
turns the annotations of a class into `Field`s, once per class; `Field.present`, `.tagged` and `.may_be_null` then
answer for a version.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from functools import cache
from struct import calcsize
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec


class Scalar(msgspec.Struct, frozen=True):
    """A value of fixed size; `code` is its letter in Python's struct module."""

    code: str

    @property
    def size(self) -> int:
        return calcsize(">" + self.code)


class Text(msgspec.Struct, frozen=True):
    """UTF-8 behind its length."""


class Binary(msgspec.Struct, frozen=True):
    """Bytes behind their length."""


class ArrayOf(msgspec.Struct, frozen=True):
    """Elements of one type behind their count."""

    element: WireType


class StructOf(msgspec.Struct, frozen=True):
    """Another message class, field by field."""

    cls: type[msgspec.Struct]


WireType: TypeAlias = Scalar | Text | Binary | ArrayOf | StructOf

UUID_CODE: Final = "16s"

Int8: TypeAlias = Annotated[int, Scalar("b")]
Int16: TypeAlias = Annotated[int, Scalar("h")]
Int32: TypeAlias = Annotated[int, Scalar("i")]
Int64: TypeAlias = Annotated[int, Scalar("q")]
Uint16: TypeAlias = Annotated[int, Scalar("H")]
Uint32: TypeAlias = Annotated[int, Scalar("I")]
Float64: TypeAlias = Annotated[float, Scalar("d")]
Bool: TypeAlias = Annotated[bool, Scalar("?")]
Uuid: TypeAlias = Annotated[UUID, Scalar(UUID_CODE)]
String: TypeAlias = Annotated[str, Text()]
Bytes: TypeAlias = Annotated[bytes, Binary()]
Records: TypeAlias = Annotated[bytes, Binary()]
"""Record batches, unread."""


class since(msgspec.Struct, frozen=True):
    """The first version that has the field; a field without it is in every version."""

    version: int


class until(msgspec.Struct, frozen=True):
    """The last version that has the field."""

    version: int


class nullable_since(msgspec.Struct, frozen=True):
    """The first version in which None may be sent, where that is later than the field itself."""

    version: int


class tag(msgspec.Struct, frozen=True):
    """The number of a tagged field; `since` where the field was an ordinary one before."""

    number: int
    since: int = 0


class _Ignorable(msgspec.Struct, frozen=True):
    """The type of `ignorable`."""


ignorable: Final = _Ignorable()
"""A version that lacks the field drops its value in silence; without it, a value other than the default is refused."""


class _Required:
    """The type of `REQUIRED`."""


REQUIRED: Final = _Required()
"""The default of a field that has none."""


class Field(msgspec.Struct, frozen=True):
    """One field of a message class, for all versions."""

    name: str
    wire: WireType
    nullable: bool
    default: object
    since: int = 0
    until: int | None = None
    nullable_since: int = 0
    tag: int | None = None
    tag_since: int = 0
    ignorable: bool = False

    def present(self, version: int) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    def tagged(self, version: int) -> bool:
        return self.tag is not None and version >= self.tag_since

    def may_be_null(self, version: int) -> bool:
        return self.nullable and version >= self.nullable_since


@cache
def fields_of(cls: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of a message class in the order in which they are sent."""
    annotations = get_type_hints(cls, include_extras=True)
    return tuple(_field(cls, item, annotations[item.name]) for item in msgspec.structs.fields(cls))


def _field(cls: type[msgspec.Struct], item: msgspec.structs.FieldInfo, annotation: Any) -> Field:
    limits = getattr(annotation, "__metadata__", ())
    wire, nullable = _wire_type(annotation)
    options: dict[str, Any] = {}
    for limit in limits:
        match limit:
            case since(version):
                options["since"] = version
            case until(version):
                options["until"] = version
            case nullable_since(version):
                options["nullable_since"] = version
            case tag(number, tag_since):
                options.update(tag=number, tag_since=tag_since)
            case _Ignorable():
                options["ignorable"] = True
    field = Field(name=item.name, wire=wire, nullable=nullable, default=_default(item), **options)
    if field.default is REQUIRED and (field.tag is not None or field.until is not None):
        raise TypeError(f"{cls.__name__}.{field.name} is not always sent, so it needs a default")
    return field


def _default(item: msgspec.structs.FieldInfo) -> object:
    if item.default is not msgspec.NODEFAULT:
        return item.default
    if item.default_factory is not msgspec.NODEFAULT:
        return item.default_factory()
    return REQUIRED


def _wire_type(annotation: Any) -> tuple[WireType, bool]:
    """The wire type that an annotation names, and whether None fits it."""
    if get_origin(annotation) is Annotated:
        for note in annotation.__metadata__:
            if isinstance(note, Scalar | Text | Binary):
                return note, False
        return _wire_type(annotation.__origin__)
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [choice for choice in get_args(annotation) if choice is not types.NoneType]
        return _wire_type(inner[0])[0], True
    if get_origin(annotation) is Sequence:
        return ArrayOf(_wire_type(get_args(annotation)[0])[0]), False
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return StructOf(annotation), False
    raise TypeError(f"{annotation!r} is no wire type")


def size_min(wire: WireType, version: int, *, flexible: bool) -> int:
    """The fewest bytes that one value takes: what an array's length is checked against before anything is allocated."""
    match wire:
        case Scalar():
            return wire.size
        case Text():
            return 1 if flexible else 2
        case Binary() | ArrayOf():
            return 1 if flexible else 4
        case StructOf(cls):
            return struct_size_min(cls, version, flexible=flexible)


def struct_size_min(cls: type[msgspec.Struct], version: int, *, flexible: bool) -> int:
    total = 1 if flexible else 0
    for field in fields_of(cls):
        if not field.present(version) or (flexible and field.tagged(version)):
            continue
        nullable_struct = isinstance(field.wire, StructOf) and field.may_be_null(version)
        total += 1 if nullable_struct else size_min(field.wire, version, flexible=flexible)
    return total
