"""What is wrong with a JSON value, said so that its producer can be found and mended.

Spark decides which rows are bad, and says no more than that. Only these come here, one by one: so this may take its
time, and where it finds nothing it says that it was Spark's judgement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    ByteType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

SHOWN_CHARS_MAX: Final = 60
_BITS: Final[dict[type[DataType], int]] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_FRACTIONS_AS_TEXT: Final = ("NaN", "+INF", "INF", "-INF", "Infinity", "+Infinity", "-Infinity")


class Fault(NamedTuple):
    """Why a row is bad, and the field that is to blame if it is one: `customer.address.zip`, `items[3].price`."""

    reason: str
    field: str = ""


def find_fault(value: bytes | None, schema: StructType) -> Fault:
    """The first thing that is wrong with a value that does not fit a schema."""
    if value is None:
        return Fault("the value is null")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        return Fault(f"the value is not UTF-8: byte {error.start} is 0x{value[error.start]:02x}")
    if not text.strip():
        return Fault("the value is empty")
    try:
        parsed = json.loads(text)
    except RecursionError:
        return Fault("the value is nested too deeply")
    except ValueError as error:
        return Fault(f"the value is not JSON: {error}")
    if not isinstance(parsed, dict):
        return Fault(f"the value is {_shown(parsed)}, not a JSON object")
    faults = list(_faults(parsed, schema, ""))
    sure = [fault for fault, is_sure in faults if is_sure]
    return next(iter(sure or [fault for fault, _ in faults]), Fault("Spark cannot read the value with this schema"))


def _faults(value: Any, kind: DataType, path: str) -> Iterator[tuple[Fault, bool]]:
    """What does not fit, each with whether that is certain: how dates and the like are read is Spark's business."""
    if isinstance(kind, StructType):
        yield from _struct_faults(value, kind, path)
    elif isinstance(kind, ArrayType):
        if not isinstance(value, list):
            yield _wrong(value, kind, path), True
            return
        for place, item in enumerate(value):
            yield from _nullable_faults(item, kind.elementType, f"{path}[{place}]", nullable=kind.containsNull)
    elif isinstance(kind, MapType):
        if not isinstance(value, dict):
            yield _wrong(value, kind, path), True
            return
        for key, item in value.items():
            yield from _nullable_faults(item, kind.valueType, f"{path}[{key}]", nullable=kind.valueContainsNull)
    else:
        fits = _fits(value, kind)
        if fits is not True:
            yield _wrong(value, kind, path), fits is False


def _struct_faults(value: Any, kind: StructType, path: str) -> Iterator[tuple[Fault, bool]]:
    if not isinstance(value, dict):
        yield _wrong(value, kind, path), True
        return
    for field in kind.fields:
        name = f"{path}.{field.name}" if path else field.name
        if field.name not in value and not field.nullable:
            yield Fault(f"field {name!r} is missing", name), True
        elif field.name in value:
            yield from _nullable_faults(value[field.name], field.dataType, name, nullable=field.nullable)


def _nullable_faults(value: Any, kind: DataType, path: str, *, nullable: bool) -> Iterator[tuple[Fault, bool]]:
    if value is not None:
        yield from _faults(value, kind, path)
    elif not nullable:
        yield Fault(f"field {path!r} is null", path), True


def _fits(value: Any, kind: DataType) -> bool | None:
    """Whether Spark reads a value as this type; None where only Spark knows."""
    if isinstance(kind, StringType):
        return True  # Spark takes everything else as its text.
    if isinstance(kind, BooleanType):
        return isinstance(value, bool)
    if type(kind) in _BITS:
        limit = 1 << (_BITS[type(kind)] - 1)
        return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if isinstance(kind, DoubleType | FloatType):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number or (isinstance(value, str) and value in _FRACTIONS_AS_TEXT)
    if kind.typeName() in ("date", "timestamp", "timestamp_ntz") and isinstance(value, str):
        return True if _is_time(value) else None
    return False if isinstance(value, dict | list | bool) else None


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _wrong(value: Any, kind: DataType, path: str) -> Fault:
    name = kind.simpleString()
    if isinstance(kind, StructType):
        name = "object"
    return Fault(f"field {path!r} is {_shown(value)}, not {'an' if name[0] in 'aio' else 'a'} {name}", path)


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARS_MAX else text[: SHOWN_CHARS_MAX - 3] + "..."
