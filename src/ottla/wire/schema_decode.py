"""Compiles the decoder of one message class in one version.

Theory of operation. The decoder is one Python function without calls into other decoders: nested structs and arrays
become nested blocks of the same function. Fields of fixed size are not read at once but gathered in a group; the group
is read by one `unpack_from` when a value is needed to go on (a length, a count of tags) or when the struct ends. A
length prefix joins the group that it ends.

What must stay true:
- `p`, the position, only grows, and every read at or beyond the end of the buffer fails by itself (IndexError,
  struct.error). So a string that claims more bytes than there are needs no check of its own: the next read fails, or
  the last check does.
- Nothing is allocated because a length says so: an array's length, times the fewest bytes that an element takes, is
  checked against the bytes that are left before its first element is read.
- The buffer is made `bytes` first: messages outlive the receive buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from ottla.model.errors import MalformedMessageError
from ottla.model.limits import ARRAY_ELEMENTS_MAX
from ottla.wire.schema_fields import (
    UUID_CODE,
    ArrayOf,
    Binary,
    Field,
    Scalar,
    StructOf,
    Text,
    WireType,
    fields_of,
    size_min,
)
from ottla.wire.schema_source import (
    SHORT_ARRAY_MAX,
    Source,
    compact_length,
    compact_text_length,
    fixed_struct,
    length_refused,
    long_text_length,
    long_uvarint,
    null_refused,
    short_array_readers,
    skip_tags,
    tag_header,
    uuid_of,
)

RUNTIME = {
    "MalformedMessageError": MalformedMessageError,
    "ReadError": (IndexError, struct.error, UnicodeDecodeError),
    "Struct": struct.Struct,
    "compact_length": compact_length,
    "compact_text_length": compact_text_length,
    "length_refused": length_refused,
    "long_text_length": long_text_length,
    "long_uvarint": long_uvarint,
    "null_refused": null_refused,
    "skip_tags": skip_tags,
    "tag_header": tag_header,
    "uuid_of": uuid_of,
}


def compile_decoder(
    cls: type[msgspec.Struct], version: int, *, flexible: bool, tail_ignored: bool = False
) -> Callable[[Any, int], Any]:
    """A function (buffer, position) -> message that reads to the end of the buffer."""
    return _Decoder(version, flexible).compile(cls, "p > end" if tail_ignored else "p != end")


class _Decoder:
    def __init__(self, version: int, flexible: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.source = Source()
        self.source.objects.update(RUNTIME)
        self.group: list[tuple[str, str]] = []

    def compile(self, cls: type[msgspec.Struct], wrong_end: str) -> Callable[[Any, int], Any]:
        source = self.source
        title = f"{cls.__name__} version {self.version}"
        source.indent("if type(buf) is not bytes:")
        source.line("buf = bytes(buf)")
        source.dedent()
        source.indent("try:")
        source.line("end = len(buf)")
        message = self.struct(cls)
        self.flush()
        source.dedent()
        source.indent("except ReadError as error:")
        source.line(f"raise MalformedMessageError(f'{title} ends early or holds no text: {{error}}') from error")
        source.dedent()
        source.indent(f"if {wrong_end}:")
        source.line(f"raise MalformedMessageError(f'{title} ends at byte {{p}} of {{end}}')")
        source.dedent()
        source.line(f"return {message}")
        return source.build(f"decode {title}", "buf, p")

    # Groups of fixed-size fields.

    def fixed(self, code: str, stem: str = "v") -> str:
        name = self.source.fresh(stem)
        self.group.append((code, name))
        return name

    def flush(self) -> None:
        if not self.group:
            return
        codes = "".join(code for code, _ in self.group)
        names = ", ".join(name for _, name in self.group)
        if codes == "B":
            self.source.line(f"{names} = buf[p]")
            self.source.line("p += 1")
        else:
            packer = fixed_struct(codes)
            unpack = self.source.name(packer.unpack_from, "unpack")
            self.source.line(f"{names}{',' if len(self.group) == 1 else ''} = {unpack}(buf, p)")
            self.source.line(f"p += {packer.size}")
        self.group = []

    # Structs.

    def struct(self, cls: type[msgspec.Struct]) -> str:
        """Reads a struct; answers with the expression that builds it, valid once the group is flushed."""
        fields = [field for field in fields_of(cls) if field.present(self.version)]
        tagged = [field for field in fields if self.flexible and field.tagged(self.version)]
        values = {
            field.name: self.value(field.wire, field.name, field.may_be_null(self.version))
            for field in fields
            if field not in tagged
        }
        if self.flexible:
            values.update(self.tags(tagged))
        arguments = ", ".join(f"{name}={value}" for name, value in values.items())
        return f"{self.source.name(cls, cls.__name__)}({arguments})"

    def tags(self, fields: list[Field]) -> dict[str, str]:
        source = self.source
        count = self.fixed("B", "tags")
        self.flush()
        if not fields:
            source.indent(f"if {count}:")
            source.line(f"p = skip_tags(buf, p, {count}, end)")
            source.dedent()
            return {}
        values = {field.name: source.fresh("v") for field in fields}
        for field in fields:
            source.line(f"{values[field.name]} = {self.default(field)}")
        source.indent(f"if {count}:")
        source.indent(f"if {count} > 127:")
        source.line(f"{count}, p = long_uvarint(buf, p, {count})")
        source.dedent()
        self.known_tags(fields, values, count)
        source.dedent()
        return values

    def known_tags(self, fields: list[Field], values: dict[str, str], count: str) -> None:
        source = self.source
        number, field_end = source.fresh("tag"), source.fresh("end")
        source.indent(f"for _ in range({count}):")
        source.line(f"{number}, {field_end}, p = tag_header(buf, p, end)")
        source.line(f"{field_end} += p")
        for position, field in enumerate(fields):
            source.indent(f"{'elif' if position else 'if'} {number} == {field.tag}:")
            value = self.value(field.wire, field.name, field.may_be_null(self.version))
            self.flush()
            source.line(f"{values[field.name]} = {value}")
            source.dedent()
        source.indent("else:")
        source.line(f"p = {field_end}")
        source.dedent()
        source.indent(f"if p != {field_end}:")
        source.line(f"raise MalformedMessageError(f'tagged field {{{number}}} is not as long as it says')")
        source.dedent()
        source.dedent()

    def default(self, field: Field) -> str:
        if isinstance(field.default, list):
            return "[]"
        if isinstance(field.default, msgspec.Struct):
            return f"{self.source.name(type(field.default), type(field.default).__name__)}()"
        return self.source.name(field.default, "default")

    # Values.

    def value(self, wire: WireType, name: str, nullable: bool) -> str:
        """Reads a value; answers with an expression for it, valid once the group is flushed."""
        match wire:
            case Scalar(code):
                raw = self.fixed(code)
                return f"uuid_of({raw})" if code == UUID_CODE else raw
            case Text():
                return self.sized("h", name, nullable, "buf[start:p].decode()")
            case Binary():
                return self.sized("i", name, nullable, "buf[start:p]")
            case ArrayOf(element):
                return self.array(element, name, nullable)
            case StructOf(cls):
                return self.nullable_struct(cls) if nullable else self.struct(cls)

    def nullable_struct(self, cls: type[msgspec.Struct]) -> str:
        marker, value = self.fixed("b"), self.source.fresh("v")
        self.flush()
        self.source.indent(f"if {marker} < 0:")
        self.source.line(f"{value} = None")
        self.source.dedent()
        self.source.indent("else:")
        message = self.struct(cls)
        self.flush()
        self.source.line(f"{value} = {message}")
        self.source.dedent()
        return value

    def length(self, code: str, name: str, nullable: bool) -> tuple[str, str]:
        """Reads a length: answers with its variable (in compact form one more), and when that means null."""
        text = "text_" if code == "h" else ""
        length = self.fixed("B" if self.flexible else code, "n")
        self.flush()
        source = self.source
        if self.flexible and nullable:
            source.indent(f"if {length} > 127:")
            source.line(f"{length}, p = {'long_text_length' if text else 'long_uvarint'}(buf, p, {length})")
            source.dedent()
        elif self.flexible:
            source.indent(f"if {length} > 127 or not {length}:")
            source.line(f"{length}, p = compact_{text}length(buf, p, {length}, {name!r})")
            source.dedent()
        elif not nullable:
            source.indent(f"if {length} < 0:")
            source.line(f"raise null_refused({name!r})")
            source.dedent()
        return length, f"not {length}" if self.flexible else f"{length} < 0"

    def sized(self, code: str, name: str, nullable: bool, expression: str) -> str:
        source = self.source
        length, is_null = self.length(code, name, nullable)
        value = source.fresh("v")
        if nullable:
            source.indent(f"if {is_null}:")
            source.line(f"{value} = None")
            source.dedent()
            source.indent("else:")
        source.line("start = p")
        source.line(f"p += {length} - 1" if self.flexible else f"p += {length}")
        source.line(f"{value} = {expression}")
        if nullable:
            source.dedent()
        return value

    def array(self, element: WireType, name: str, nullable: bool) -> str:
        source = self.source
        length, is_null = self.length("i", name, nullable)
        value = source.fresh("v")
        if nullable:
            source.indent(f"if {is_null}:")
            source.line(f"{value} = None")
            source.dedent()
            source.indent("else:")
        if self.flexible:
            source.line(f"{length} -= 1")
        least = size_min(element, self.version, flexible=self.flexible)
        if least == 0:
            raise TypeError(f"nothing bounds the length of {name}: its elements take no bytes")
        source.indent(f"if {length} * {least} > end - p or {length} > {ARRAY_ELEMENTS_MAX}:")
        source.line(f"raise length_refused({name!r}, {length}, end - p)")
        source.dedent()
        self.elements(element, name, length, value)
        if nullable:
            source.dedent()
        return value

    def elements(self, element: WireType, name: str, length: str, value: str) -> None:
        source = self.source
        if isinstance(element, Scalar):
            self.scalars(element, length, value)
            return
        source.line(f"{value} = []")
        source.indent(f"for _ in range({length}):")
        item = self.value(element, name, False)
        self.flush()
        source.line(f"{value}.append({item})")
        source.dedent()

    def scalars(self, element: Scalar, length: str, value: str) -> None:
        source = self.source
        size = f"{length} * {element.size}"
        if element.code == UUID_CODE:
            source.line(f"{value} = [uuid_of(buf[at : at + 16]) for at in range(p, p + {size}, 16)]")
        else:
            short = source.name(short_array_readers(element.code), "short")
            long = f"Struct(f'>{{{length}}}{element.code}').unpack_from"
            source.line(f"read = {short}[{length}] if {length} < {SHORT_ARRAY_MAX} else {long}")
            source.line(f"{value} = list(read(buf, p))")
        source.line(f"p += {size}")
