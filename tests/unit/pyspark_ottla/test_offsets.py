"""Offsets as Spark writes them, where they lie, and how ranges are cut into tasks."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.cluster import Cluster
from ottla.client.errors import NotFoundError
from ottla.client.producer import Producer
from ottla.model.ids import TopicPartition
from pyspark_ottla.offsets import (
    OffsetRange,
    cut,
    from_json,
    resolve,
    subscribed_partitions,
    to_json,
    within_limit,
)
from pyspark_ottla.options import OptionError, SourceOptions, Subscription, batch_options

A, B = TopicPartition("a", 0), TopicPartition("a", 10)
SIZES = st.lists(st.integers(0, 10_000), min_size=1, max_size=20)


def ranges_of(sizes: list[int]) -> list[OffsetRange]:
    return [OffsetRange(TopicPartition("t", index), 7 * index, 7 * index + size) for index, size in enumerate(sizes)]


def test_the_text_has_a_fixed_order() -> None:
    offsets = {TopicPartition("b", 0): 1, B: 2, TopicPartition("a", 2): 3}
    assert json.dumps(to_json(offsets), separators=(",", ":")) == '{"a":{"2":3,"10":2},"b":{"0":1}}'
    assert from_json(to_json(offsets)) == offsets


@pytest.mark.parametrize("offset", [7, None, [1], {"seconds": 7}, "x"])
def test_an_offset_of_another_kind_of_source_is_refused(offset: object) -> None:
    with pytest.raises(OptionError, match="it is the checkpoint of another query"):
        from_json(offset)


@given(SIZES, st.none() | st.integers(1, 50), st.none() | st.integers(1, 3_000))
def test_a_cut_loses_nothing_and_doubles_nothing(sizes: list[int], parts: int | None, most: int | None) -> None:
    whole = ranges_of(sizes)
    pieces = cut(whole, parts, most)
    for each in whole:
        own = [piece for piece in pieces if piece.partition == each.partition]
        position = each.start
        for piece in own:
            assert piece.start == position
            assert piece.size > 0
            position = piece.end
        assert position == each.end
    if most is not None:
        assert all(piece.size <= most for piece in pieces)


def test_large_ranges_are_cut_and_small_ones_left_alone() -> None:
    pieces = cut(ranges_of([1000, 10, 0]), 4)
    assert [piece.size for piece in pieces] == [333, 333, 334, 10]
    assert cut(ranges_of([5, 5]), 2) == ranges_of([5, 5])


@given(SIZES, st.integers(1, 5_000))
def test_a_limit_lets_every_partition_go_on(sizes: list[int], most: int) -> None:
    whole = ranges_of(sizes)
    start = {each.partition: each.start for each in whole}
    end = {each.partition: each.end for each in whole}
    limited = within_limit(start, end, most)
    assert all(start[each] <= limited[each] <= end[each] for each in end)
    assert all(limited[each.partition] > each.start for each in whole if each.size)
    assert sum(limited[each] - start[each] for each in end) <= max(most, 0) + len(end)


def options_of(bootstrap: str, topic: str, **given: str) -> SourceOptions:
    return batch_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **given})


def fill(cluster: Cluster, topic: str, partition: int, times: list[int]) -> None:
    with Producer(cluster) as producer:
        for time_ms in times:
            producer.send(topic, b"x", partition=partition, timestamp_ms=time_ms)


def test_positions_are_resolved(bootstrap: str, cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    fill(cluster, topic, 0, [1000, 2000, 3000])
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    def at(position: str, value: str, **more: str) -> dict[TopicPartition, int]:
        options = options_of(bootstrap, topic, **{position: value}, **more)
        wanted = subscribed_partitions(cluster, options.subscription)
        is_start = position.startswith("starting")
        return resolve(cluster, wanted, options.starting if is_start else options.ending, options, is_start=is_start)

    assert at("startingOffsets", "earliest") == {first: 0, second: 0}
    assert at("endingOffsets", "latest") == {first: 3, second: 0}
    given = json.dumps({topic: {"0": 2, "1": -1}})
    assert at("endingOffsets", given) == {first: 2, second: 0}
    assert at("endingTimestamp", "1500") == {first: 1, second: 0}
    assert at("startingTimestamp", "1500", startingOffsetsByTimestampStrategy="latest") == {first: 1, second: 0}
    with pytest.raises(OptionError, match=f"No offset matched from request of topic-partition {second} and timestamp"):
        at("startingTimestamp", "1500")
    with pytest.raises(OptionError, match="you must specify all TopicPartitions"):
        at("startingOffsets", json.dumps({topic: {"0": 1}}))


def test_partitions_are_found(cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert subscribed_partitions(cluster, Subscription(topics=(topic,))) == both
    assert subscribed_partitions(cluster, Subscription(pattern=f"{topic[:-1]}.")) == both
    assert subscribed_partitions(cluster, Subscription(assigned=(both[1],))) == [both[1]]
    with pytest.raises(NotFoundError, match="not-there"):
        subscribed_partitions(cluster, Subscription(topics=("not-there",)))
    with pytest.raises(OptionError, match="the topic has 2 partitions"):
        subscribed_partitions(cluster, Subscription(assigned=(TopicPartition(topic, 2),)))
