"""kio's own classes for Produce and Fetch as the judge of ours: made from plain values, as bytes."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import typing
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
ZERO_UUID = UUID(int=0)

int16s = st.integers(-(1 << 15), (1 << 15) - 1)
int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
durations = st.integers(0, (1 << 31) - 1)
times = st.just(-1) | st.integers(0, 4_000_000_000_000)
error_codes = st.sampled_from([int(code) for code in ErrorCode])
names = st.text(max_size=20) | st.text("ab", min_size=120, max_size=150)
topic_ids = st.uuids()
blobs = st.binary(max_size=40) | st.binary(min_size=100, max_size=400) | st.just(bytes(17_000))


def kio_bytes(api: str, version: int, side: str, values: Mapping[str, Any]) -> bytes:
    """`values` as kio writes them; what that version has no field for is left out."""
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    cls = getattr(module, f"{api.capitalize()}{side.capitalize()}")
    written = io.BytesIO()
    entity_writer(cls)(written, _entity(cls, values))
    return written.getvalue()


def _entity(cls: Any, values: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(cls)
    known = {}
    for field in dataclasses.fields(cls):
        if field.name in values:
            known[field.name] = _value(field.metadata.get("kafka_type"), hints[field.name], values[field.name])
    return cls(**known)


def _value(kafka_type: str | None, hint: Any, value: Any) -> Any:
    if value is None:
        return None
    if kafka_type == "timedelta_i32":
        return datetime.timedelta(milliseconds=value)
    if kafka_type == "datetime_i64":
        return None if value == -1 else EPOCH + datetime.timedelta(milliseconds=value)
    if kafka_type == "error_code":
        return ErrorCode(value)
    if kafka_type == "uuid":
        return None if value == ZERO_UUID else value
    if isinstance(value, list):
        element = _dataclass_in(hint)
        return tuple(value if element is None else (_entity(element, item) for item in value))
    if isinstance(value, Mapping):
        return _entity(_dataclass_in(hint), value)
    return value


def _dataclass_in(hint: Any) -> Any:
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for arg in typing.get_args(hint) if (found := _dataclass_in(arg)) is not None), None)
