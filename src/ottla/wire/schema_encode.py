"""Compiles the encoder of one message class in one version.

Theory of operation. The encoder is one Python function that appends byte strings to a list, which the caller joins
once, with whatever it put in front. As in the decoder, nested structs and arrays are nested blocks, and fields of fixed
size gather in a group that one `pack` writes; an empty set of tags is a pad byte of that group, and a length prefix
joins the group that it ends.

What must stay true: the order of `append`s is the order of the bytes, so whatever appends must flush the group first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import msgspec

from ottla.wire.schema_fields import UUID_CODE, ArrayOf, Binary, Field, Scalar, StructOf, Text, WireType, fields_of
from ottla.wire.schema_source import (
    SHORT_ARRAY_MAX,
    UVARINTS,
    Source,
    field_refused,
    fixed_struct,
    short_array_writers,
    text_uvarint,
    uvarint,
)

RUNTIME = {
    "Struct": struct.Struct,
    "UVARINTS": UVARINTS,
    "field_refused": field_refused,
    "text_uvarint": text_uvarint,
    "uvarint": uvarint,
}


def compile_encoder(cls: type[msgspec.Struct], version: int, *, flexible: bool) -> Callable[[Any, list[bytes]], None]:
    """A function (message, parts) that appends the message's bytes to `parts`."""
    return _Encoder(f"{cls.__name__} version {version}", version, flexible).compile(cls)


class _Encoder:
    def __init__(self, title: str, version: int, flexible: bool) -> None:
        self.title = title
        self.version = version
        self.flexible = flexible
        self.source = Source()
        self.source.objects.update(RUNTIME)
        self.group: list[tuple[str, str]] = []
        self.append = "append"

    def compile(self, cls: type[msgspec.Struct]) -> Callable[[Any, list[bytes]], None]:
        self.source.line("append = parts.append")
        self.struct(cls, "message")
        self.flush()
        return self.source.build(f"encode {self.title}", "message, parts")

    # Groups of fixed-size fields.

    def pack(self, *more: tuple[str, str]) -> str:
        """The expression that packs the group."""
        group = [*self.group, *more]
        codes = "".join(code for code, _ in group)
        if codes == "x":
            return r"b'\0'"
        packer = self.source.name(fixed_struct(codes).pack, "pack")
        return f"{packer}({', '.join(value for _, value in group if value)})"

    def flush(self) -> None:
        if self.group:
            self.source.line(f"{self.append}({self.pack()})")
            self.group = []

    def length(self, code: str, length: str) -> None:
        """Writes the group and a length (a variable; already the compact form's where the version is flexible)."""
        if not self.flexible:
            self.group.append((code, length))
            self.flush()
            return
        short, long = f"UVARINTS[{length}]", f"{'text_' if code == 'h' else ''}uvarint({length})"
        if self.group:
            short, long = self.pack(("B", length)), f"{self.pack()} + {long}"
        self.source.line(f"{self.append}({short} if {length} < 128 else {long})")
        self.group = []

    # Structs.

    def struct(self, cls: type[msgspec.Struct], message: str) -> None:
        tagged: list[Field] = []
        for field in fields_of(cls):
            value = f"{message}.{field.name}"
            if not field.present(self.version):
                self.absent(field, value)
            elif self.flexible and field.tagged(self.version):
                tagged.append(field)
            else:
                self.value(field.wire, value, field.may_be_null(self.version))
        if self.flexible:
            self.tags(sorted(tagged, key=lambda field: field.tag or 0), message)

    def absent(self, field: Field, value: str) -> None:
        if field.ignorable:
            return
        self.source.indent(f"if {self.is_set(field, value)}:")
        self.source.line(f"raise field_refused({self.title!r}, {field.name!r})")
        self.source.dedent()

    def is_set(self, field: Field, value: str) -> str:
        """The condition under which a value is not the field's default. An empty tuple is as good as an empty list."""
        if field.default is None:
            return f"{value} is not None"
        if field.default == [] and not field.nullable:
            return value
        if field.default == []:
            return f"{value} is None or {value}"
        return f"{value} != {self.source.name(field.default, 'default')}"

    def tags(self, fields: list[Field], message: str) -> None:
        if not fields:
            self.group.append(("x", ""))
            return
        source = self.source
        count = source.fresh("tags")
        conditions = [self.is_set(field, f"{message}.{field.name}") for field in fields]
        source.line(f"{count} = " + " + ".join(f"bool({condition})" for condition in conditions))
        self.length("B", count)
        source.indent(f"if {count}:")
        for field, condition in zip(fields, conditions, strict=True):
            source.indent(f"if {condition}:")
            self.tag(field, f"{message}.{field.name}")
            source.dedent()
        source.dedent()

    def tag(self, field: Field, value: str) -> None:
        """Writes one tagged field aside, because its size goes before it."""
        source = self.source
        outer, parts, body = self.append, source.fresh("parts"), source.fresh("body")
        self.append = source.fresh("append")
        source.line(f"{parts} = []")
        source.line(f"{self.append} = {parts}.append")
        self.value(field.wire, value, field.may_be_null(self.version))
        self.flush()
        self.append = outer
        source.line(f"{body} = b''.join({parts})")
        source.line(f"{outer}({uvarint(field.tag or 0)!r} + uvarint(len({body})))")
        source.line(f"{outer}({body})")

    # Values.

    def value(self, wire: WireType, value: str, nullable: bool) -> None:
        match wire:
            case Scalar(code):
                self.group.append((code, f"{value}.bytes" if code == UUID_CODE else value))
            case Text():
                self.sized("h", value, nullable, ".encode()")
            case Binary():
                self.sized("i", value, nullable, "")
            case ArrayOf(element):
                self.array(element, value, nullable)
            case StructOf(cls):
                self.nested(cls, value, nullable)

    def nested(self, cls: type[msgspec.Struct], value: str, nullable: bool) -> None:
        source = self.source
        message = source.fresh("m")
        source.line(f"{message} = {value}")
        if not nullable:
            self.struct(cls, message)
            return
        self.flush()
        source.indent(f"if {message} is None:")
        source.line(rf"{self.append}(b'\xff')")
        source.dedent()
        source.indent("else:")
        source.line(rf"{self.append}(b'\x01')")
        self.struct(cls, message)
        self.flush()
        source.dedent()

    def sized(self, code: str, value: str, nullable: bool, conversion: str) -> None:
        source = self.source
        raw, length = source.fresh("s"), source.fresh("n")
        one_more = " + 1" if self.flexible else ""
        if nullable:
            source.line(f"{raw} = {value}")
            source.indent(f"if {raw} is None:")
            source.line(f"{raw} = b''")
            source.line(f"{length} = {0 if self.flexible else -1}")
            source.dedent()
            source.indent("else:")
            if conversion:
                source.line(f"{raw} = {raw}{conversion}")
            source.line(f"{length} = len({raw}){one_more}")
            source.dedent()
        else:
            source.line(f"{raw} = {value}{conversion}")
            source.line(f"{length} = len({raw}){one_more}")
        self.length(code, length)
        source.line(f"{self.append}({raw})")

    def array(self, element: WireType, value: str, nullable: bool) -> None:
        source = self.source
        items = source.fresh("items")
        source.line(f"{items} = {value}")
        if not nullable:
            self.elements(element, items)
            return
        self.flush()
        source.indent(f"if {items} is None:")
        source.line(f"{self.append}({self.null_array()!r})")
        source.dedent()
        source.indent("else:")
        self.elements(element, items)
        source.dedent()

    def null_array(self) -> bytes:
        return b"\0" if self.flexible else b"\xff\xff\xff\xff"

    def elements(self, element: WireType, items: str) -> None:
        """Writes the length of an array that is not null, and its elements."""
        source = self.source
        if isinstance(element, Scalar) and element.code != UUID_CODE:
            self.scalars(element.code, items)
            return
        length, item = source.fresh("n"), source.fresh("item")
        source.line(f"{length} = len({items}){' + 1' if self.flexible else ''}")
        self.length("i", length)
        source.indent(f"for {item} in {items}:")
        if isinstance(element, StructOf):
            self.struct(element.cls, item)
        else:
            self.value(element, item, False)
        self.flush()
        source.dedent()

    def scalars(self, code: str, items: str) -> None:
        """Writes an array of numbers; a short one, such as the replicas of a partition, with one `pack`."""
        source = self.source
        self.flush()
        length = source.fresh("n")
        source.line(f"{length} = len({items})")
        short = source.name(short_array_writers("B" if self.flexible else "i", code), "short")
        before = f"{length} + 1" if self.flexible else length
        prefix = f"uvarint({before})" if self.flexible else f"{length}.to_bytes(4, 'big')"
        source.line(
            f"{self.append}({short}[{length}]({before}, *{items}) if {length} < {SHORT_ARRAY_MAX}"
            f" else {prefix} + Struct(f'>{{{length}}}{code}').pack(*{items}))"
        )
