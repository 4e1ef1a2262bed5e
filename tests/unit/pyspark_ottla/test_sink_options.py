"""Options and columns of the sink are Spark's, and what it cannot take is refused before anything is sent."""

from __future__ import annotations

import pickle

import pytest
from pyspark.sql import types

from ottla.wire.compression import Codec
from pyspark_ottla.options import OptionError
from pyspark_ottla.sink_options import Delivery, check_sink_schema, sink_options

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"}
HEADERS = types.ArrayType(
    types.StructType([types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())])
)


def schema(**columns: types.DataType) -> types.StructType:
    return types.StructType([types.StructField(name, kind) for name, kind in columns.items()])


def test_the_defaults() -> None:
    options = sink_options(BASE, Delivery.EXACTLY_ONCE)
    assert options.delivery is Delivery.EXACTLY_ONCE
    assert options.codec is Codec.NONE
    assert options.acks == -1
    assert options.transaction_timeout_ms == 15 * 60_000
    assert sink_options({"kafka.bootstrap.servers": "h"}, Delivery.AT_LEAST_ONCE).topic is None
    assert pickle.loads(pickle.dumps(options)) == options


def test_what_is_given() -> None:
    given = {
        **BASE,
        "DELIVERY": "at_least_once",
        "kafka.compression.type": "zstd",
        "kafka.acks": "1",
        "kafka.max.request.size": "5",
        "transactionalIdPrefix": "mine",
    }
    options = sink_options(given, Delivery.EXACTLY_ONCE)
    assert options.delivery is Delivery.AT_LEAST_ONCE
    assert (options.codec, options.acks, options.row_bytes_max, options.id_prefix) == (Codec.ZSTD, 1, 5, "mine")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"kafka.bootstrap.servers": ""}, "must be specified for configuring Kafka producer"),
        ({"delivery": "maybe"}, "delivery is exactly_once or at_least_once"),
        ({"kafka.acks": "2"}, "kafka.acks is all, 1 or 0"),
        ({"kafka.acks": "1"}, "exactly_once needs kafka.acks=all"),
        ({"kafka.compression.type": "rar"}, "kafka.compression.type is one of"),
        ({"kafka.key.serializer": "x"}, "keys are serialized with ByteArraySerializer"),
        ({"kafka.value.serializer": "x"}, "values are serialized with ByteArraySerializer"),
        ({"kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ({"kafka.transaction.timeout.ms": "soon"}, "kafka.transaction.timeout.ms is a whole number"),
    ],
)
def test_refusals(changes: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        sink_options({**BASE, **changes}, Delivery.EXACTLY_ONCE)


def test_columns_that_fit() -> None:
    text, number = types.StringType(), types.IntegerType()
    check_sink_schema(schema(value=types.BinaryType()), "t")
    check_sink_schema(schema(topic=text, key=text, value=text, headers=HEADERS, partition=number), None)


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"key": types.StringType()}, "t", "Required attribute 'value' not found"),
        ({"value": types.StringType()}, None, "topic option required when no 'topic' attribute is present"),
        ({"value": types.LongType()}, "t", r"value attribute unsupported type bigint. value must be a\(n\) string or"),
        ({"value": types.StringType(), "partition": types.LongType()}, "t", "partition attribute unsupported type"),
        ({"value": types.StringType(), "user": types.StringType()}, "t", "the sink has no column 'user'"),
    ],
)
def test_columns_that_do_not(columns: dict[str, types.DataType], topic: str | None, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        check_sink_schema(schema(**columns), topic)
