"""Columns are those of Spark's Kafka source."""

from __future__ import annotations

import pytest
from pyspark.sql import types

from pyspark_ottla.options import OptionError
from pyspark_ottla.schema import arrow_schema, check_schema, source_schema
from tests.unit.pyspark_ottla.tables import schema_of


def test_the_columns_and_their_order() -> None:
    assert source_schema(include_headers=False) == (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    assert source_schema(include_headers=True).endswith(", headers array<struct<key:string,value:binary>>")


def test_fewer_columns_in_another_order() -> None:
    schema = schema_of("offset", "value")
    check_schema(schema, include_headers=False)
    assert arrow_schema(schema).names == ["offset", "value"]


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(OptionError, match="there is no column 'user'; there are key, value"):
        check_schema(types.StructType([types.StructField("user", types.StringType())]), include_headers=False)
    with pytest.raises(OptionError, match='set the option includeHeaders to "true"'):
        check_schema(schema_of("headers"), include_headers=False)
    check_schema(schema_of("headers"), include_headers=True)


def test_a_column_of_another_type() -> None:
    with pytest.raises(OptionError, match="column 'value' is binary, not string: convert it afterwards"):
        check_schema(types.StructType([types.StructField("value", types.StringType())]), include_headers=False)
