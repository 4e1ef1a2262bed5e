"""Filters narrow what is read, and never leave out a row that passes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from pyspark_ottla.pushdown import FilteringReader, oldest_wanted_ms
from pyspark_ottla.source import DefaultSource
from tests.unit.pyspark_ottla.tables import schema_of

OFFSET, PARTITION, TOPIC, TIMESTAMP = ("offset",), ("partition",), ("topic",), ("timestamp",)


def ranges(bootstrap: str, topic: str, *filters: Filter) -> list[tuple[int, int, int]]:
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "pushdown": "true"}
    reader: Any = DefaultSource(given).reader(schema_of("offset"))
    assert isinstance(reader, FilteringReader)
    assert list(reader.pushFilters(list(filters))) == list(filters)
    return [(part.partition.partition, part.start, part.end) for part in reader.ranges()]


def moment(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.fixture
def topic(cluster: Cluster, new_topic: Callable[..., str]) -> str:
    name = new_topic(2)
    with Producer(cluster) as producer:
        for partition in (0, 1):
            for number in range(10):
                producer.send(name, b"x", partition=partition, timestamp_ms=1000 * number)
    return name


def test_partitions_and_offsets(bootstrap: str, topic: str) -> None:
    assert ranges(bootstrap, topic) == [(0, 0, 10), (1, 0, 10)]
    assert ranges(bootstrap, topic, EqualTo(PARTITION, 1)) == [(1, 0, 10)]
    assert ranges(bootstrap, topic, In(PARTITION, (0, 5)), GreaterThanOrEqual(OFFSET, 4)) == [(0, 4, 10)]
    assert ranges(bootstrap, topic, GreaterThan(PARTITION, 0), LessThan(OFFSET, 4)) == [(1, 0, 4)]
    assert ranges(bootstrap, topic, LessThanOrEqual(PARTITION, 0), LessThanOrEqual(OFFSET, 4)) == [(0, 0, 5)]
    assert ranges(bootstrap, topic, EqualTo(TOPIC, "another")) == []
    assert ranges(bootstrap, topic, EqualTo(OFFSET, 3), GreaterThan(OFFSET, 1)) == [(0, 3, 4), (1, 3, 4)]
    assert ranges(bootstrap, topic, In(OFFSET, (7, 2))) == [(0, 2, 8), (1, 2, 8)]
    assert ranges(bootstrap, topic, GreaterThan(OFFSET, 9)) == []


def test_what_is_not_understood_narrows_nothing(bootstrap: str, topic: str) -> None:
    filters = (IsNotNull(OFFSET), Not(EqualTo(PARTITION, 0)), StringStartsWith(TOPIC, "x"), EqualTo(("value",), b"x"))
    assert ranges(bootstrap, topic, *filters) == [(0, 0, 10), (1, 0, 10)]


def test_times(bootstrap: str, topic: str) -> None:
    assert ranges(bootstrap, topic, EqualTo(PARTITION, 0), GreaterThanOrEqual(TIMESTAMP, moment(3000))) == [(0, 3, 10)]
    assert ranges(bootstrap, topic, EqualTo(PARTITION, 0), GreaterThan(TIMESTAMP, moment(3000))) == [(0, 4, 10)]
    assert ranges(bootstrap, topic, GreaterThan(TIMESTAMP, moment(99_000))) == []
    assert ranges(bootstrap, topic, EqualTo(PARTITION, 0), LessThan(TIMESTAMP, moment(3000))) == [(0, 0, 10)]


def test_times_are_rounded_to_where_nothing_is_left_out() -> None:
    assert oldest_wanted_ms(GreaterThanOrEqual(TIMESTAMP, moment(3000.5))) == 3001
    assert oldest_wanted_ms(GreaterThan(TIMESTAMP, moment(3000.5))) == 3001
    assert oldest_wanted_ms(GreaterThan(TIMESTAMP, moment(3000))) == 3001
    assert oldest_wanted_ms(In(TIMESTAMP, (moment(9), moment(7)))) == 7
    assert oldest_wanted_ms(EqualTo(OFFSET, 3)) == -1
    local = datetime.fromtimestamp(3)
    assert oldest_wanted_ms(EqualTo(TIMESTAMP, local)) == 3000
