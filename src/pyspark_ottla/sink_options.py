"""The options of the sink: those of Spark's Kafka sink, and how surely rows arrive."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.client.settings import ClientSettings
from ottla.model.errors import ConfigError
from ottla.wire.compression import Codec
from pyspark_ottla.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_REFUSED: Final = {
    "key.serializer": "Kafka option 'key.serializer' is not supported as keys are serialized with ByteArraySerializer.",
    "value.serializer": (
        "Kafka option 'value.serializer' is not supported as values are serialized with ByteArraySerializer."
    ),
    "transactional.id": "Kafka option 'transactional.id' is not supported: set transactionalIdPrefix instead",
}
_KINDS: Final = {
    "topic": ("string",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
}


class Delivery(Enum):
    """How surely rows arrive."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """All of it, checked. Picklable."""

    settings: ClientSettings
    topic: str | None
    delivery: Delivery
    codec: Codec = Codec.NONE
    acks: int = -1
    row_bytes_max: int = 1 << 20
    batch_bytes: int = 512 * 1024
    """A partition's rows are sent in batches of about this size."""
    delivery_timeout_ms: int = 120_000
    transaction_timeout_ms: int = 15 * 60_000
    id_prefix: str = "ottla-spark"


def sink_options(options: Mapping[str, str], default: Delivery) -> SinkOptions:
    """The options of `df.write` and `df.writeStream`."""
    given = {key.lower(): value for key, value in options.items()}
    kafka = {key.removeprefix("kafka."): value for key, value in given.items() if key.startswith("kafka.")}
    for key, words in _REFUSED.items():
        if key in kafka:
            raise OptionError(words)
    if not kafka.get("bootstrap.servers", "").strip():
        raise OptionError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka producer")
    try:
        settings = ClientSettings.from_kafka(kafka)
    except ConfigError as error:
        raise OptionError(f"kafka.{error}") from error
    delivery = _delivery(given.get("delivery", default.value))
    acks = _acks(kafka.get("acks", "all"))
    if delivery is Delivery.EXACTLY_ONCE and acks != -1:
        raise OptionError("delivery=exactly_once needs kafka.acks=all")
    topic = given.get("topic", "").strip() or None
    row_bytes_max = _number("kafka.max.request.size", kafka.get("max.request.size", str(1 << 20)))
    batch_bytes = _number("kafka.batch.size", kafka.get("batch.size", str(512 * 1024)))
    return SinkOptions(
        settings=settings,
        topic=topic,
        delivery=delivery,
        codec=_codec(kafka.get("compression.type", "none")),
        acks=acks,
        row_bytes_max=row_bytes_max,
        batch_bytes=max(min(batch_bytes, row_bytes_max), 1),
        delivery_timeout_ms=_number("kafka.delivery.timeout.ms", kafka.get("delivery.timeout.ms", "120000")),
        transaction_timeout_ms=_number("kafka.transaction.timeout.ms", kafka.get("transaction.timeout.ms", "900000")),
        id_prefix=given.get("transactionalidprefix", "ottla-spark"),
    )


def check_sink_schema(schema: StructType, topic: str | None) -> None:
    """Refuse columns that a topic has no place for, in Spark's words."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "topic" not in kinds and topic is None:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in kinds:
        raise OptionError("Required attribute 'value' not found.")
    for name, kind in kinds.items():
        if name not in _KINDS:
            raise OptionError(f"the sink has no column {name!r}; it takes {', '.join(_KINDS)}: drop or rename it")
        if kind not in _KINDS[name]:
            raise OptionError(
                f"{name} attribute unsupported type {kind}. {name} must be a(n) {' or '.join(_KINDS[name])}"
            )


def _delivery(text: str) -> Delivery:
    try:
        return Delivery(text.strip().lower())
    except ValueError:
        raise OptionError(f"delivery is exactly_once or at_least_once, not {text!r}") from None


def _codec(text: str) -> Codec:
    try:
        return Codec[text.strip().upper()]
    except KeyError:
        known = ", ".join(codec.name.lower() for codec in Codec)
        raise OptionError(f"kafka.compression.type is one of {known}, not {text!r}") from None


def _acks(text: str) -> int:
    known = {"all": -1, "-1": -1, "1": 1, "0": 0}
    if text.strip().lower() not in known:
        raise OptionError(f"kafka.acks is all, 1 or 0, not {text!r}")
    return known[text.strip().lower()]


def _number(key: str, text: str) -> int:
    if not re.fullmatch(r"\d+", text.strip()):
        raise OptionError(f"{key} is a whole number, not {text!r}")
    return int(text)
