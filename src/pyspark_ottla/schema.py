"""The columns of the source: those of Spark's Kafka source, with its types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark_ottla.options import OptionError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COLUMNS: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
HEADERS: Final = "array<struct<key:string,value:binary>>"


def source_schema(*, include_headers: bool) -> str:
    """The schema as DDL."""
    columns = {**COLUMNS, "headers": HEADERS} if include_headers else COLUMNS
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def check_schema(schema: StructType, *, include_headers: bool) -> None:
    """Refuse a schema of the user's that asks for what is not there."""
    known = {**COLUMNS, "headers": HEADERS} if include_headers else COLUMNS
    for field in schema.fields:
        if field.name not in known:
            hint = ' (set the option includeHeaders to "true" for it)' if field.name == "headers" else ""
            raise OptionError(f"there is no column {field.name!r}{hint}; there are {', '.join(known)}")
        kind = field.dataType.simpleString()
        if kind != known[field.name]:
            raise OptionError(f"column {field.name!r} is {known[field.name]}, not {kind}: convert it afterwards")


def arrow_schema(schema: StructType) -> pa.Schema:
    """The same columns in the types that Spark insists on."""
    import pyarrow as pa

    kinds = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
    }
    return pa.schema([pa.field(name, kinds[name]) for name in schema.fieldNames()])
