"""Topics read and written through the source's own parts, without Spark's Java side."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types
from pyspark.sql.types import StructType

from pyspark_ottla.source import DefaultSource


def bootstrap_of(request: pytest.FixtureRequest) -> str:
    """The broker that the tests were told to use, else one of their own."""
    return os.environ.get("OTTLA_TEST_BOOTSTRAP") or str(request.getfixturevalue("ottla_server").bootstrap_servers)


def rows_of(bootstrap: str, topic: str, *columns: str, **options: str) -> list[dict[str, Any]]:
    """All rows of a topic."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **options}
    reader: Any = DefaultSource(given).reader(schema_of(*columns))
    return [row for part in reader.partitions() for table in reader.read(part) for row in table.to_pylist()]


def schema_of(*columns: str) -> StructType:
    """A schema with these columns of the source."""
    kinds = {
        "key": types.BinaryType(),
        "value": types.BinaryType(),
        "topic": types.StringType(),
        "partition": types.IntegerType(),
        "offset": types.LongType(),
        "timestamp": types.TimestampType(),
        "timestampType": types.IntegerType(),
        "headers": types.ArrayType(
            types.StructType(
                [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
            )
        ),
    }
    return types.StructType([types.StructField(name, kinds[name]) for name in columns or kinds])


def table_of(values: list[str], **columns: list[Any]) -> pa.RecordBatch:
    """A table with a column `value` of text, and others."""
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string()), **columns})
