"""A batch reader that lets filters narrow what is read: `.option("pushdown", "true")`.

Spark hands filters over only with `spark.sql.python.filterPushdown.enabled=true`, and refuses every read of a reader
that could take them without it: hence the option.

Filters on `topic` and `partition` leave partitions out, filters on `offset` cut their ranges, and a lower bound of
`timestamp` moves the start to the first record that is not older. An upper bound of `timestamp` cannot cut anything:
timestamps are the producers' and need not grow with offsets. Every filter is given back to Spark, which applies it to
what is left; so a filter that is not understood here costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import EqualTo, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from ottla.client.offsets import list_offsets
from pyspark_ottla.offsets import OffsetRange
from pyspark_ottla.reader import BatchReader

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from ottla.client.cluster import Cluster
    from pyspark_ottla.options import SourceOptions

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US_PER_MS: Final = 1000
_NO_TIME: Final = -1


class FilteringReader(BatchReader):
    """`BatchReader` with filters."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._filters: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._filters = list(filters)
        return self._filters

    def narrowed(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        kept = [self._cut(whole) for whole in ranges if self._may_match(whole)]
        oldest_ms = max((oldest_wanted_ms(each) for each in self._filters), default=_NO_TIME)
        kept = [whole for whole in kept if whole.size > 0]
        return kept if oldest_ms < 0 else _from_time(cluster, kept, oldest_ms)

    def _may_match(self, whole: OffsetRange) -> bool:
        values = {"topic": whole.partition.topic, "partition": whole.partition.partition}
        return all(_allows(each, values[_column(each)]) for each in self._filters if _column(each) in values)

    def _cut(self, whole: OffsetRange) -> OffsetRange:
        start, end = whole.start, whole.end
        for each in self._filters:
            if _column(each) == "offset":
                first, last = wanted_offsets(each)
                start, end = max(start, first), min(end, last + 1)
        return OffsetRange(whole.partition, start, max(start, end))


def _from_time(cluster: Cluster, ranges: Sequence[OffsetRange], oldest_ms: int) -> list[OffsetRange]:
    if not ranges:
        return []
    found = list_offsets(cluster, dict.fromkeys((whole.partition for whole in ranges), oldest_ms))
    kept = []
    for whole in ranges:
        first = found[whole.partition].offset
        if first >= 0:
            kept.append(OffsetRange(whole.partition, max(whole.start, first), max(whole.end, first)))
    return kept


def _column(condition: Filter) -> str:
    """The column of the source that a filter is about."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _allows(condition: Filter, value: Any) -> bool:
    """False only if no row with this value passes the filter."""
    wanted: Any = getattr(condition, "value", None)
    if isinstance(condition, EqualTo):
        return bool(value == wanted)
    if isinstance(condition, In):
        return value in condition.value
    if isinstance(condition, GreaterThan):
        return bool(value > wanted)
    if isinstance(condition, GreaterThanOrEqual):
        return bool(value >= wanted)
    if isinstance(condition, LessThan):
        return bool(value < wanted)
    if isinstance(condition, LessThanOrEqual):
        return bool(value <= wanted)
    return True


def wanted_offsets(condition: Filter) -> tuple[int, int]:
    """The first and the last offset that may pass a filter on `offset`."""
    lowest, highest = 0, 2**63 - 1
    if isinstance(condition, EqualTo):
        return condition.value, condition.value
    if isinstance(condition, In):
        return min(condition.value, default=highest), max(condition.value, default=lowest - 1)
    if isinstance(condition, GreaterThan):
        return condition.value + 1, highest
    if isinstance(condition, GreaterThanOrEqual):
        return condition.value, highest
    if isinstance(condition, LessThan):
        return lowest, condition.value - 1
    if isinstance(condition, LessThanOrEqual):
        return lowest, condition.value
    return lowest, highest


def oldest_wanted_ms(condition: Filter) -> int:
    """The time of the oldest record that may pass a filter; -1 if it may be of any age."""
    if _column(condition) != "timestamp":
        return _NO_TIME
    if isinstance(condition, EqualTo | GreaterThanOrEqual):
        return -(-_microseconds(condition.value) // _US_PER_MS)
    if isinstance(condition, GreaterThan):
        return _microseconds(condition.value) // _US_PER_MS + 1
    if isinstance(condition, In) and condition.value:
        return min(-(-_microseconds(value) // _US_PER_MS) for value in condition.value)
    return _NO_TIME


def _microseconds(value: datetime) -> int:
    """Since 1970; a time without a zone is local, as everywhere in PySpark."""
    aware = value.astimezone(UTC) if value.tzinfo is None else value
    return (aware - _EPOCH) // timedelta(microseconds=1)
