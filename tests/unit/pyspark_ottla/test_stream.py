"""The streaming reader as Spark calls it: offsets that never skip anything in silence."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.producer import Producer
from ottla.model.ids import TopicPartition
from pyspark_ottla import stream
from pyspark_ottla.options import stream_options
from pyspark_ottla.reader import DataLossError
from pyspark_ottla.stream import StreamReader
from tests.unit.pyspark_ottla.tables import schema_of

NewTopic = Callable[..., str]
LIST_OFFSETS_KEY = 2
ALL = ReadAllAvailable()


class Fixture:
    """A topic and readers of it."""

    def __init__(self, bootstrap: str, cluster: Cluster, topic: str) -> None:
        self.bootstrap, self.cluster, self.topic = bootstrap, cluster, topic
        self.readers: list[StreamReader] = []

    def add(self, count: int, partition: int = 0) -> None:
        with Producer(self.cluster) as producer:
            for _ in range(count):
                producer.send(self.topic, b"x" * 100, partition=partition)

    def reader(self, **options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, **options}
        self.readers.append(StreamReader(stream_options(given), schema_of("offset")))
        return self.readers[-1]

    def at(self, *offsets: int) -> dict[str, dict[str, int]]:
        return {self.topic: {str(partition): offset for partition, offset in enumerate(offsets)}}

    def ranges(self, reader: StreamReader, start: Any, end: Any) -> list[tuple[int, int, int]]:
        parts: Any = reader.partitions(start, end)
        return [(part.index, part.start, part.end) for part in parts]


@pytest.fixture
def topic(bootstrap: str, cluster: Cluster, new_topic: NewTopic, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fixture]:
    monkeypatch.setattr(stream, "TOPICS_AGE_SECONDS_MAX", -1.0)
    made = Fixture(bootstrap, cluster, new_topic(2))
    yield made
    for reader in made.readers:
        reader.stop()


def test_the_first_batch_of_a_query_is_empty_so_that_its_start_is_written_down(topic: Fixture) -> None:
    topic.add(5)
    reader = topic.reader()
    start = reader.initialOffset()
    topic.add(3)
    assert reader.initialOffset() == start == topic.at(5, 0)
    assert reader.latestOffset(start, ALL) is start
    assert topic.ranges(reader, start, start) == []
    end = reader.latestOffset(start, ALL)
    assert end == topic.at(8, 0)
    assert topic.ranges(reader, start, end) == [(0, 5, 8)]
    assert reader.latestOffset(end, ALL) is end
    assert reader.reportLatestOffset() == end


def test_a_first_batch_that_is_run_again_loses_nothing(topic: Fixture) -> None:
    start = topic.reader().initialOffset()
    topic.add(4)
    again = topic.reader()
    later = again.initialOffset()
    assert topic.ranges(again, later, start) == []
    assert topic.ranges(again, start, again.latestOffset(start, ALL)) == [(0, 0, 4)]


def test_everything_that_is_there_now_and_no_more(topic: Fixture) -> None:
    topic.add(5)
    reader = topic.reader(startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    topic.add(5)
    assert end == topic.at(5, 0)
    assert reader.latestOffset(end, ALL) is end


def test_partitions_that_start_at_the_latest_offset_wait_for_the_next_run(topic: Fixture) -> None:
    topic.add(2, 0)
    topic.add(2, 1)
    given = json.dumps({topic.topic: {"0": -2, "1": -1}})
    reader = topic.reader(startingOffsets=given)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    topic.add(1, 1)
    end = reader.latestOffset(start, ALL)
    assert end == topic.at(2, 2)
    again = topic.reader(startingOffsets=given)
    again.prepareForTriggerAvailableNow()
    assert topic.ranges(again, again.initialOffset(), end) == [(0, 0, 2)]
    following = topic.reader(startingOffsets=given)
    following.prepareForTriggerAvailableNow()
    assert following.latestOffset(end, ALL) == topic.at(2, 3)


def test_an_idle_trigger_costs_one_list_offsets(topic: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "TOPICS_AGE_SECONDS_MAX", 600.0)
    topic.add(3)
    reader = topic.reader(startingOffsets="earliest")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    end = reader.latestOffset(start, ALL)
    sent: list[int] = []
    send_raw = Connection.send_raw

    def noted(self: Connection, api_key: int, *given: Any) -> Any:
        sent.append(api_key)
        return send_raw(self, api_key, *given)

    monkeypatch.setattr(Connection, "send_raw", noted)
    assert reader.latestOffset(end, ALL) is end
    assert reader.reportLatestOffset() == end
    assert sent == [LIST_OFFSETS_KEY]


def test_limits(topic: Fixture) -> None:
    topic.add(60, 0)
    topic.add(20, 1)
    start = topic.at(0, 0)
    by_rows = topic.reader(maxOffsetsPerTrigger="40")
    assert by_rows.getDefaultReadLimit() == ReadMaxRows(40)
    assert by_rows.latestOffset(start, by_rows.getDefaultReadLimit()) == topic.at(30, 10)
    by_bytes = topic.reader(maxBytesPerTrigger="2000").latestOffset(start, ALL)
    rows = sum(by_bytes[topic.topic].values())
    assert 2 <= rows <= 25
    waits = topic.reader(minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    waits._batch_begun_at = float("inf")
    assert waits.latestOffset(start, ALL) is start
    topic.add(20, 1)
    assert waits.latestOffset(start, ALL) == topic.at(60, 40)


def test_partitions_that_come_later_are_read_from_their_beginning(topic: Fixture) -> None:
    topic.add(1)
    reader = topic.reader(startingOffsets="earliest")
    start = reader.initialOffset()
    reader.latestOffset(start, ALL)
    Admin(topic.cluster).set_partition_count(topic.topic, 3)
    topic.cluster.forget(topic.topic)
    topic.add(2, 2)
    end = reader.latestOffset(start, ALL)
    assert end == topic.at(1, 0, 2)
    assert topic.ranges(reader, start, end) == [(0, 0, 1), (2, 0, 2)]


def test_a_deleted_topic_is_data_loss(topic: Fixture, new_topic: NewTopic) -> None:
    other = new_topic(1)
    both = f"{topic.topic},{other}"
    strict, lenient = topic.reader(subscribe=both), topic.reader(subscribe=both, failOnDataLoss="false")
    start = strict.initialOffset()
    assert lenient.initialOffset() == start
    for reader in (strict, lenient):
        reader.latestOffset(start, ALL)
        reader.latestOffset(start, ALL)
    Admin(topic.cluster).delete_topic(other)
    with pytest.raises(DataLossError, match=other):
        strict.latestOffset(start, ALL)
    lenient.latestOffset(start, ALL)
    with pytest.raises(DataLossError, match=f"{other}-0 is gone"):
        strict.partitions(start, topic.at(0, 0))
    assert lenient.partitions(start, topic.at(0, 0)) == []
    Admin(topic.cluster).create_topic(other, partitions=1)


def test_a_checkpoint_of_a_query_that_reads_another_topic(topic: Fixture) -> None:
    reader = topic.reader()
    words = f"the checkpoint has other-0, and this query reads {topic.topic}: it is the checkpoint of another query"
    with pytest.raises(DataLossError, match=words):
        reader.latestOffset({"other": {"0": 3}}, ALL)
    with pytest.raises(DataLossError, match=words):
        reader.partitions({"other": {"0": 3}}, topic.at(0, 0))


def test_an_end_before_the_start_is_data_loss(topic: Fixture) -> None:
    topic.add(3)
    strict, lenient = topic.reader(), topic.reader(failOnDataLoss="false")
    with pytest.raises(DataLossError, match="went back from 3 to 1"):
        strict.partitions(topic.at(3, 0), topic.at(1, 0))
    assert topic.ranges(lenient, topic.at(3, 0), topic.at(1, 0)) == []
    with pytest.raises(DataLossError, match="ends at offset 3, before 50, where the query is"):
        strict.latestOffset(topic.at(50, 0), ALL)


def test_a_reader_travels_without_its_connections(topic: Fixture) -> None:
    topic.add(2)
    reader = topic.reader(startingOffsets="earliest")
    start = reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    (part,) = copy.partitions(start, topic.at(2, 0))
    assert [row["offset"] for table in copy.read(part) for row in table.to_pylist()] == [0, 1]


def test_an_added_partition_that_does_not_begin_at_its_beginning(topic: Fixture) -> None:
    topic.add(5, 1)
    Admin(topic.cluster).delete_records({TopicPartition(topic.topic, 1): 2})
    with pytest.raises(DataLossError, match="starts from 2 instead of 0"):
        topic.reader().latestOffset({topic.topic: {"0": 0}}, ALL)
