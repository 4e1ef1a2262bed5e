"""The options of the source, with the names, defaults and refusals of Spark's Kafka source, and a few of our own.

Spark hands options over with their keys in lower case. Everything that can be wrong about them is found here, before a
byte is sent: an `OptionError` says which option it is and what to write instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeVar

from ottla.client.offsets import EARLIEST, LATEST, Isolation
from ottla.client.settings import ClientSettings
from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition

T = TypeVar("T")

_STRATEGIES: Final = ("subscribe", "subscribepattern", "assign")
_SHOWN_STRATEGIES: Final = "subscribe, subscribepattern, assign"
_TIME_UNITS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip
_REFUSED: Final = {
    "auto.offset.reset": (
        "Kafka option 'auto.offset.reset' is not supported. Instead set the source option 'startingOffsets' to "
        "'earliest' or 'latest' to specify where to start. It only applies when a new streaming query is started; a "
        "query that is resumed goes on where it left off."
    ),
    "key.deserializer": (
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays. Use DataFrame "
        "operations to explicitly deserialize the keys."
    ),
    "value.deserializer": (
        "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays. Use DataFrame "
        "operations to explicitly deserialize the values."
    ),
    "enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
}
"""Kafka's settings that a source cannot honour, and what to say about them."""


class OptionError(ValueError):
    """An option is missing, malformed or contradicts another one."""


class Edge(Enum):
    """One end of what a partition holds."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for each partition; EARLIEST and LATEST stand for themselves."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The first record at or after a time in ms: one for each partition, or one for all."""

    by_partition: Mapping[TopicPartition, int] | None
    everywhere: int = -1


Position = Edge | Offsets | Timestamps
"""Where to begin or to end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which partitions are read; exactly one of these is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All of it, checked. Picklable."""

    settings: ClientSettings
    subscription: Subscription
    starting: Position
    ending: Position = Edge.LATEST
    latest_if_no_match: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    records_per_partition_max: int | None = None
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    bytes_per_trigger_max: int | None = None
    trigger_delay_ms_max: int = 15 * 60_000
    include_headers: bool = False
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    poll_timeout_ms: int = 120_000
    group_id: str | None = None
    group_id_prefix: str = "spark-ottla-source"
    commit_offsets: bool = True
    check_crcs: bool = False
    pushdown: bool = False
    rack: str = ""
    fetch_bytes_max: int = 4 << 20
    ignored: tuple[str, ...] = field(default=())


def batch_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `spark.read`."""
    read = _Reader(options)
    starting = read.position("starting", Edge.EARLIEST)
    ending = read.position("ending", Edge.LATEST)
    _check_edges(starting, ending)
    _check_pair(starting, ending)
    return read.all(starting, ending)


def stream_options(options: Mapping[str, str]) -> SourceOptions:
    """The options of `spark.readStream`."""
    read = _Reader(options)
    if "endingoffsets" in read.given:
        raise OptionError("ending offset not valid in streaming queries")
    if "endingoffsetsbytimestamp" in read.given or "endingtimestamp" in read.given:
        raise OptionError("ending timestamp not valid in streaming queries")
    return read.all(read.position("starting", Edge.LATEST), Edge.LATEST)


class _Reader:
    """Reads options one by one."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.given = {key.lower(): value for key, value in options.items()}

    def all(self, starting: Position, ending: Position) -> SourceOptions:
        subscription = self._subscription()
        min_partitions = self._positive("minpartitions", "minPartitions")
        records_max = self._positive("maxrecordsperpartition", "maxRecordsPerPartition")
        settings = self._settings()
        kafka = self._kafka()
        most = self._positive("maxoffsetspertrigger", "maxOffsetsPerTrigger")
        least = self._positive("minoffsetspertrigger", "minOffsetsPerTrigger")
        if most is not None and least is not None and least > most:
            raise OptionError(
                f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})."
            )
        return SourceOptions(
            settings=settings,
            subscription=subscription,
            starting=starting,
            ending=ending,
            latest_if_no_match=self._no_match_strategy(),
            fail_on_data_loss=self._flag("failondataloss", "failOnDataLoss", True),
            min_partitions=min_partitions,
            records_per_partition_max=records_max,
            offsets_per_trigger_max=most,
            offsets_per_trigger_min=least,
            bytes_per_trigger_max=self._positive("maxbytespertrigger", "maxBytesPerTrigger"),
            trigger_delay_ms_max=self._duration("maxtriggerdelay", "maxTriggerDelay", 15 * 60_000),
            include_headers=self._flag("includeheaders", "includeHeaders", False),
            isolation=self._isolation(kafka),
            poll_timeout_ms=self._positive("kafkaconsumer.polltimeoutms", "kafkaConsumer.pollTimeoutMs") or 120_000,
            group_id=kafka.get("group.id"),
            group_id_prefix=self.given.get("groupidprefix", "spark-ottla-source"),
            commit_offsets=self._flag("commitoffsets", "commitOffsets", True),
            check_crcs=self._flag("checkcrcs", "checkCrcs", kafka.get("check.crcs", "false") == "true"),
            pushdown=self._flag("pushdown", "pushdown", False),
            rack=kafka.get("client.rack", ""),
            ignored=settings.ignored,
        )

    def _kafka(self) -> dict[str, str]:
        return {key.removeprefix("kafka."): value for key, value in self.given.items() if key.startswith("kafka.")}

    def _settings(self) -> ClientSettings:
        kafka = self._kafka()
        for key, words in _REFUSED.items():
            if key in kafka:
                raise OptionError(words)
        if not kafka.get("bootstrap.servers", "").strip():
            raise OptionError("Option 'kafka.bootstrap.servers' must be specified for configuring Kafka consumer")
        try:
            return ClientSettings.from_kafka(kafka)
        except ConfigError as error:
            raise OptionError(f"kafka.{error}") from error

    def _subscription(self) -> Subscription:
        given = [key for key in _STRATEGIES if key in self.given]
        if not given:
            raise OptionError(
                f"One of the following options must be specified for Kafka source: {_SHOWN_STRATEGIES}. "
                "See the docs for more details."
            )
        if len(given) > 1:
            raise OptionError(
                f"Only one of the following options can be specified for Kafka source: {_SHOWN_STRATEGIES}. "
                "See the docs for more details."
            )
        value = self.given[given[0]]
        if given[0] == "subscribe":
            topics = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
            if not topics:
                raise OptionError(f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'")
            return Subscription(topics=topics)
        if given[0] == "subscribepattern":
            return Subscription(pattern=_pattern(value))
        if not value.strip().startswith("{"):
            raise OptionError(f"No topicpartitions to assign as specified value for option 'assign' is '{value}'")
        return Subscription(assigned=_assigned(value))

    def position(self, which: str, default: Position) -> Position:
        """`which` is starting or ending. A time for all goes before times of partitions, and these before offsets."""
        time_key, times_key, offsets_key = f"{which}timestamp", f"{which}offsetsbytimestamp", f"{which}offsets"
        if time_key in self.given:
            text = self.given[time_key].strip()
            if not re.fullmatch(r"-?\d+", text):
                raise OptionError(f"Expected a single long value, got {text}")
            return Timestamps(None, int(text))
        if times_key in self.given:
            return Timestamps(partition_numbers(f"{which}OffsetsByTimestamp", self.given[times_key]))
        if offsets_key in self.given:
            text = self.given[offsets_key].strip()
            edge = {"earliest": Edge.EARLIEST, "latest": Edge.LATEST}.get(text.lower())
            return edge or Offsets(partition_numbers(f"{which}Offsets", text))
        return default

    def _isolation(self, kafka: Mapping[str, str]) -> Isolation:
        text = self.given.get("isolation.level", kafka.get("isolation.level", "read_uncommitted"))
        try:
            return Isolation[text.strip().upper()]
        except KeyError:
            raise OptionError(f"isolation.level is read_committed or read_uncommitted, not {text!r}") from None

    def _no_match_strategy(self) -> bool:
        text = self.given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
        if text not in ("error", "latest"):
            raise OptionError(f"startingOffsetsByTimestampStrategy is error or latest, not {text!r}")
        return text == "latest"

    def _positive(self, key: str, shown: str) -> int | None:
        return self._read(key, lambda text: _positive(shown, text), None)

    def _flag(self, key: str, shown: str, default: bool) -> bool:
        return self._read(key, lambda text: _flag(shown, text), default)

    def _duration(self, key: str, shown: str, default_ms: int) -> int:
        return self._read(key, lambda text: duration_ms(shown, text), default_ms)

    def _read(self, key: str, read: Callable[[str], T], default: T) -> T:
        return read(self.given[key].strip()) if key in self.given else default


def _positive(shown: str, text: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text):
        raise OptionError(f"{shown} must be a whole number, not {text!r}")
    if int(text) <= 0:
        raise OptionError(f"{shown} must be positive")
    return int(text)


def _flag(shown: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{shown} is true or false, not {text!r}")
    return text.lower() == "true"


def duration_ms(shown: str, text: str) -> int:
    """A time as Spark writes it: `15m`, `30s`, `500ms`; a plain number is ms."""
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.lower())
    unit = _TIME_UNITS_MS.get(match[2] or "ms") if match else None
    if match is None or unit is None:
        raise OptionError(f"{shown} is a time such as 30s, 15m or 500ms, not {text!r}")
    return int(match[1]) * unit


def _pattern(text: str) -> str:
    pattern = text.strip()
    if not pattern:
        raise OptionError(f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{text}'")
    try:
        re.compile(pattern)
    except re.error as error:
        raise OptionError(f"subscribePattern {pattern!r} is no regular expression: {error}") from error
    return pattern


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    """`{"topicA":[0,1],"topicB":[2]}`"""
    example = '{"topicA":[0,1],"topicB":[2,4]}'
    parsed = _json("assign", text, example)
    partitions = [
        TopicPartition(topic, index)
        for topic, indexes in parsed.items()
        if isinstance(indexes, list)
        for index in indexes
        if isinstance(index, int) and index >= 0
    ]
    if not partitions or len(partitions) != sum(len(v) if isinstance(v, list) else 1 for v in parsed.values()):
        raise OptionError(f"Expected e.g. {example} for option 'assign', got {text}")
    return tuple(sorted(set(partitions)))


def partition_numbers(shown: str, text: str) -> dict[TopicPartition, int]:
    """`{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}`"""
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    parsed = _json(shown, text, example)
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict):
            raise OptionError(f"Expected e.g. {example} for option '{shown}', got {text}")
        for index, number in partitions.items():
            if not index.isdecimal() or not isinstance(number, int) or isinstance(number, bool):
                raise OptionError(f"Expected e.g. {example} for option '{shown}', got {text}")
            numbers[TopicPartition(topic, int(index))] = number
    return numbers


def _json(shown: str, text: str, example: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise OptionError(f"Expected e.g. {example} for option '{shown}', got {text}")
    return parsed


def _check_edges(starting: Position, ending: Position) -> None:
    if starting is Edge.LATEST:
        raise OptionError("starting offset can't be latest for batch queries on Kafka")
    if ending is Edge.EARLIEST:
        raise OptionError("ending offset can't be earliest for batch queries on Kafka")
    if isinstance(starting, Offsets):
        for partition, offset in starting.by_partition.items():
            if offset == LATEST:
                raise OptionError(f"startingOffsets for {partition} can't be latest for batch queries on Kafka")
    if isinstance(ending, Offsets):
        for partition, offset in ending.by_partition.items():
            if offset == EARLIEST:
                raise OptionError(f"ending offset for {partition} can't be earliest for batch queries on Kafka")


def _check_pair(starting: Position, ending: Position) -> None:
    """Where both ends are spelled out, they name the same partitions, and no end lies before its start."""
    if isinstance(starting, Offsets) and isinstance(ending, Offsets):
        first, last, what = starting.by_partition, ending.by_partition, "offset"
    elif isinstance(starting, Timestamps) and isinstance(ending, Timestamps):
        if starting.by_partition is None or ending.by_partition is None:
            return
        first, last, what = starting.by_partition, ending.by_partition, "timestamp"
    else:
        return
    if first.keys() != last.keys():
        raise OptionError(
            f"startingOffsets names {_shown(first)} and endingOffsets {_shown(last)}: name the same partitions in both"
        )
    for partition, start in first.items():
        if 0 <= last[partition] < start:
            raise OptionError(
                f"the starting {what} {start} of {partition} is after its ending {what} {last[partition]}"
            )


def _shown(partitions: Mapping[TopicPartition, int]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))
