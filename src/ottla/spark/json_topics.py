"""Topics of JSON as typed data frames, with a place for the rows that are none.

    orders = from_json_topic(spark.stream("orders"), schema="id bigint not null, amount double", bad_rows="orders-bad")

Spark parses, in Java; what it cannot read, or reads only in part, is bad, and so is a row that lacks a field which the
schema says is not null. Spark on its own is lenient: it takes the first of two objects, ignores what follows an object,
and replaces bytes that are no text. All of this is bad here: nothing is left out in silence. The bad rows leave the
query on the way, `pyspark_ottla.dead_letters` tells how.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.model.errors import ConfigError, OttlaError
from ottla.spark.sessions import BOOTSTRAP_VARIABLE, read
from ottla.spark.source_options import SERVERS, options_of_source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from pyspark_ottla.sink_options import SinkOptions

INFER: Final = "infer"
SAMPLE_ROWS: Final = 1000
_CORRUPT: Final = "_ottla_corrupt"
_PARSED: Final = "_ottla_parsed"
_LETTER_COLUMNS: Final = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
_BLANKS: Final = " \t\r\n"
"""What JSON allows around a value."""
_OURS: Final = ("mode", "columnnameofcorruptrecord")
_STREAM_ONLY: Final = (
    "maxoffsetspertrigger", "minoffsetspertrigger", "maxbytespertrigger", "maxtriggerdelay", "startingoffsets",
    "startingtimestamp", "startingoffsetsbytimestamp", "startingoffsetsbytimestampstrategy", "commitoffsets",
)  # fmt: skip
"""Options that say where a stream starts and how fast it goes, which is nothing to a sample."""
_READER_ONLY: Final = ("kafka.group.id", "kafka.isolation.level")


class NoSampleError(OttlaError):
    """There is nothing to infer a schema from."""


def from_json_topic(
    df: DataFrame,
    schema: StructType | str,
    bad_rows: str | None = None,
    *,
    keep: Iterable[str] = (),
    options: Mapping[str, str] | None = None,
    json_options: Mapping[str, str] | None = None,
    sample: int = SAMPLE_ROWS,
) -> DataFrame:
    """The fields of a topic's JSON as columns. Rows that do not fit go to the topic `bad_rows`, and the rest goes on.

    `df` is a frame of the source, batch or stream, or anything with a column `value`. `schema` is a StructType or its
    text; a field that is `not null` has to be there. With "infer" it is found by a look at `sample` rows.

    `keep` names columns of `df` to have as well, for example ("key", "timestamp"). `options` are those of the sink, for
    the bad rows; the brokers and their security are those of the frame's source unless said otherwise here.
    `json_options` are those of Spark's `from_json`, for example {"timestampFormat": ...}.

    Without `bad_rows` a bad row fails the query, with an error that says which one and why.
    """
    from pyspark.sql import functions as F

    _check_columns(df, keep)
    if bad_rows is not None and not bad_rows.strip():
        raise ConfigError("bad_rows is the name of a topic: leave it out to have bad rows fail the query")
    wanted = infer_json_schema(df, sample=sample) if schema == INFER else _schema(schema)
    kept = [name for name in keep if name not in wanted.fieldNames()]
    if len(kept) < len(list(keep)):
        both = ", ".join(name for name in keep if name in wanted.fieldNames())
        raise ConfigError(f"{both}: a field of the schema and a column to keep; rename it in the frame before")
    destination = None if bad_rows is None else _destination(df, bad_rows.strip(), options or {})
    text = F.col("value").cast("string")
    parsed = df.withColumn(_PARSED, F.from_json(text, _with_corrupt(wanted), _json_options(json_options or {})))
    good = parsed.where(_pass_good(wanted, destination)(F.when(_is_bad(wanted), _letter(df))))
    return good.select(*(F.col(_PARSED)[name].alias(name) for name in wanted.fieldNames()), *kept)


def infer_json_schema(topic: DataFrame | str, *, sample: int = SAMPLE_ROWS, bootstrap: str | None = None) -> StructType:
    """The schema of the JSON objects in the first rows of a topic, or of a frame with a column `value`.

    Rows that are no JSON objects are left out. Every field may be null. Of a streaming frame the topics that it reads
    are looked at, from their beginning.
    """
    from pyspark.sql import functions as F

    if sample < 1:
        raise ConfigError(f"sample is a number of rows, at least 1, not {sample}")
    df = read(topic, bootstrap=bootstrap) if isinstance(topic, str) else topic
    session = df.sparkSession
    if df.isStreaming:
        given = options_of_source(df)
        if not given:
            raise ConfigError("a stream of something else than topics has no sample: give its schema")
        fitting = {key: value for key, value in given.items() if key not in _STREAM_ONLY}
        df = session.read.format("ottla").options(**fitting).load()
    rows = df.where("value is not null").select("value").limit(sample).collect()
    objects = [text for text in (_object(row.value) for row in rows) if text is not None]
    if not objects:
        raise NoSampleError(f"there is no JSON object in the {len(rows)} rows that were looked at: give the schema")
    found = session.range(1).select(F.schema_of_json(F.lit(f"[{','.join(objects)}]"))).collect()[0][0]
    array: Any = _data_type(found)
    merged: StructType = array.elementType
    return merged


def _object(value: bytes | str) -> str | None:
    """A value again if it is a JSON object."""
    try:
        text = value if isinstance(value, str) else bytes(value).decode()
        return text if isinstance(json.loads(text), dict) else None
    except (ValueError, RecursionError):
        return None


# -- what is asked for


def _check_columns(df: DataFrame, keep: Iterable[str]) -> None:
    kinds = dict(df.dtypes)
    if kinds.get("value") not in ("binary", "string"):
        raise ConfigError(f"the frame needs a column 'value' of type binary or string; it has {', '.join(kinds)}")
    missing = [name for name in keep if name not in kinds]
    if missing:
        raise ConfigError(f"keep names {', '.join(missing)}; the frame has {', '.join(kinds)}")


def _schema(schema: StructType | str) -> StructType:
    from pyspark.sql.types import StructType

    wanted = _data_type(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType) or not wanted.fields:
        raise ConfigError(f"the schema is that of an object with at least one field, not {schema!r}")
    return wanted


def _data_type(ddl: str) -> DataType:
    from pyspark.sql.types import DataType

    return DataType.fromDDL(ddl)


def _with_corrupt(schema: StructType) -> StructType:
    from pyspark.sql.types import StringType, StructType

    return StructType(list(schema.fields)).add(_CORRUPT, StringType())


def _json_options(given: Mapping[str, str]) -> dict[str, str]:
    for key in given:
        if key.lower() in _OURS:
            raise ConfigError(f"json_options cannot set {key}: what is bad is decided here")
    strict = {"allowSingleQuotes": "false", "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return {**strict, **given}


def _destination(df: DataFrame, topic: str, overrides: Mapping[str, str]) -> SinkOptions:
    from pyspark_ottla.sink_options import Delivery, sink_options

    source = options_of_source(df)
    given = {key: value for key, value in source.items() if key.startswith("kafka.") and key not in _READER_ONLY}
    given |= {key.lower(): str(value) for key, value in overrides.items()}
    if SERVERS not in given and BOOTSTRAP_VARIABLE in os.environ:
        given[SERVERS] = os.environ[BOOTSTRAP_VARIABLE]
    if SERVERS not in given:
        raise ConfigError(f"the frame does not read topics: give options={{{SERVERS!r}: ...}} for its bad rows")
    default = Delivery.EXACTLY_ONCE if df.isStreaming else Delivery.AT_LEAST_ONCE
    chosen = sink_options({**given, "topic": topic}, default)
    if chosen.delivery is Delivery.EXACTLY_ONCE and not df.isStreaming:
        raise ConfigError("delivery=exactly_once of bad rows is for streams: a batch query sends them whenever it runs")
    return chosen


# -- what Spark evaluates


def _pass_good(schema: StructType, destination: SinkOptions | None) -> Any:
    """The function that lets good rows pass and sends bad ones on. It must not be left out, doubled or moved."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import BooleanType

    from pyspark_ottla.dead_letters import DeadLetters, passing

    topic = "" if destination is None else destination.topic
    name = hashlib.blake2b(f"{topic} {schema.json()}".encode(), digest_size=6).hexdigest()
    udf: Any = arrow_udf
    return udf(passing(DeadLetters(schema, destination, name)), BooleanType()).asNondeterministic()


def _letter(df: DataFrame) -> Column:
    """All that a bad row takes with it: the columns of the source that are still what they were."""
    from pyspark.sql import functions as F

    from pyspark_ottla.schema import COLUMNS, HEADERS

    kinds, of_source = dict(df.dtypes), {**COLUMNS, "headers": HEADERS}
    taken = {name: F.col(name) for name in _LETTER_COLUMNS if kinds.get(name) == of_source[name]}
    taken |= {name: F.col(name).cast("binary") for name in ("key", "value") if kinds.get(name) == "string"}
    if "timestamp" in taken:
        taken["timestamp"] = F.unix_millis("timestamp")
    return F.struct(*(column.alias(name) for name, column in taken.items()))


def _is_bad(schema: StructType) -> Column:
    """Whether a row does not fit. Never null."""
    from pyspark.sql import functions as F

    text, parsed = F.col("value").cast("string"), F.col(_PARSED)
    # In brackets, two objects behind each other, or an object and something else, are not an array of one.
    alone = F.json_array_length(F.concat(F.lit("["), text, F.lit("]")))
    fits = (
        F.is_valid_utf8(text)
        & parsed.isNotNull()
        & parsed[_CORRUPT].isNull()
        & (alone == 1)
        & F.rtrim(text, F.lit(_BLANKS)).endswith("}")
        & ~_lacks(parsed, schema)
    )
    return ~F.coalesce(fits, F.lit(False))


def _lacks(value: Column, kind: DataType) -> Column:
    """Whether something that must not be null is, in a value that is there."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        found = F.lit(False)
        for field in kind.fields:
            found = found | _lacking(value[field.name], field.dataType, nullable=field.nullable)
        return found
    if isinstance(kind, ArrayType):
        item, nullable = kind.elementType, kind.containsNull
        if nullable and not _has_required(item):
            return F.lit(False)
        return F.coalesce(F.exists(value, lambda each: _lacking(each, item, nullable=nullable)), F.lit(False))
    if isinstance(kind, MapType):
        as_array = ArrayType(kind.valueType, kind.valueContainsNull)
        return _lacks(F.map_values(value), as_array)
    return F.lit(False)


def _lacking(value: Column, kind: DataType, *, nullable: bool) -> Column:
    inside = value.isNotNull() & _lacks(value, kind) if _has_required(kind) else None
    if nullable:
        from pyspark.sql import functions as F

        return F.lit(False) if inside is None else inside
    return value.isNull() if inside is None else value.isNull() | inside


def _has_required(kind: DataType) -> bool:
    """Whether there is anything in a type that must not be null."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return any(not field.nullable or _has_required(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return not kind.containsNull or _has_required(kind.elementType)
    if isinstance(kind, MapType):
        return not kind.valueContainsNull or _has_required(kind.valueType)
    return False
