"""Options are Spark's: names, defaults and refusals."""

from __future__ import annotations

import pickle

import pytest

from ottla.client.offsets import Isolation
from ottla.model.ids import TopicPartition
from pyspark_ottla.options import (
    Edge,
    Offsets,
    OptionError,
    Timestamps,
    batch_options,
    duration_ms,
    partition_numbers,
    stream_options,
)

BASE = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}


def test_the_defaults() -> None:
    batch, stream = batch_options(BASE), stream_options(BASE)
    assert (batch.starting, batch.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert stream.starting is Edge.LATEST
    assert batch.fail_on_data_loss
    assert batch.isolation is Isolation.READ_UNCOMMITTED
    assert not batch.include_headers
    assert not batch.pushdown
    assert stream.commit_offsets
    assert stream.group_id is None
    assert pickle.loads(pickle.dumps(stream)) == stream


def test_keys_are_read_in_any_case() -> None:
    given = {**BASE, "STARTINGoffsets": "Earliest", "MaxOffsetsPerTrigger": "5", "kafka.Group.Id": "g"}
    options = stream_options(given)
    assert options.starting is Edge.EARLIEST
    assert options.offsets_per_trigger_max == 5
    assert options.group_id == "g"


def test_what_is_read() -> None:
    assert batch_options({**BASE, "subscribe": " a , b,a,"}).subscription.topics == ("a", "b")
    without = {"kafka.bootstrap.servers": "h"}
    assert batch_options({**without, "subscribePattern": "a.*"}).subscription.pattern == "a.*"
    assigned = batch_options({**without, "assign": '{"b":[2],"a":[1,0]}'}).subscription.assigned
    assert assigned == (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2))


def test_positions() -> None:
    offsets = batch_options({**BASE, "startingOffsets": '{"t":{"0":23,"1":-2}}'}).starting
    assert offsets == Offsets({TopicPartition("t", 0): 23, TopicPartition("t", 1): -2})
    times = batch_options({**BASE, "startingOffsetsByTimestamp": '{"t":{"0":1000}}'}).starting
    assert times == Timestamps({TopicPartition("t", 0): 1000})
    everywhere = {**BASE, "startingTimestamp": "1000", "startingOffsetsByTimestamp": "{}", "startingOffsets": "latest"}
    assert batch_options(everywhere).starting == Timestamps(None, 1000)
    assert batch_options({**BASE, "endingTimestamp": "5"}).ending == Timestamps(None, 5)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"subscribe": ""}, "No topics to subscribe to"),
        ({"subscribe": " , "}, "No topics to subscribe to"),
        ({"assign": "{}"}, "Only one of the following options can be specified"),
        ({"subscribepattern": "x"}, "Only one of the following options can be specified"),
        ({"kafka.bootstrap.servers": " "}, "Option 'kafka.bootstrap.servers' must be specified"),
        ({"kafka.bootstrap.servers": "host:port"}, "HOST:PORT"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "t-0 can't be latest for batch queries"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "t-0 can't be earliest for batch queries"),
        (
            {"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"0":5}}'},
            "9 of t-0 is after its ending offset 5",
        ),
        ({"startingOffsets": '{"t":{"0":9}}', "endingOffsets": '{"t":{"1":10}}'}, "name the same partitions in both"),
        ({"startingOffsets": "soon"}, "Expected e.g."),
        ({"startingOffsets": '{"t":[1]}'}, "Expected e.g."),
        ({"startingOffsets": '{"t":{"0":"1"}}'}, "Expected e.g."),
        ({"startingOffsets": '{"t":{"x":1}}'}, "Expected e.g."),
        ({"startingTimestamp": "now"}, "Expected a single long value"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "is error or latest"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"minPartitions": "few"}, "minPartitions must be a whole number"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition must be positive"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "higher than the maxOffsetsPerTrigger"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss"),
        ({"maxTriggerDelay": "a while"}, "maxTriggerDelay is a time such as"),
        ({"isolation.level": "none"}, "read_committed or read_uncommitted"),
        ({"kafka.auto.offset.reset": "earliest"}, "startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "keys are deserialized as byte arrays"),
        ({"kafka.value.deserializer": "x"}, "values are deserialized as byte arrays"),
        ({"kafka.enable.auto.commit": "true"}, "'enable.auto.commit' is not supported"),
        ({"kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported"),
    ],
)
def test_refusals(changes: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError, match=words.replace(".", r"\.")):
        batch_options({**BASE, **changes})


def test_no_topics_at_all() -> None:
    with pytest.raises(OptionError, match="One of the following options must be specified"):
        batch_options({"kafka.bootstrap.servers": "h"})


@pytest.mark.parametrize("text", ["x", "{}", '{"a":[-1]}', '{"a":["0"]}', '{"a":0}'])
def test_a_bad_assignment(text: str) -> None:
    with pytest.raises(OptionError, match="assign"):
        batch_options({"kafka.bootstrap.servers": "h", "assign": text})


@pytest.mark.parametrize("pattern", ["", "("])
def test_a_bad_pattern(pattern: str) -> None:
    with pytest.raises(OptionError, match=r"(?i)pattern"):
        batch_options({"kafka.bootstrap.servers": "h", "subscribePattern": pattern})


@pytest.mark.parametrize("key", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(key: str) -> None:
    with pytest.raises(OptionError, match="not valid in streaming queries"):
        stream_options({**BASE, key: "latest"})


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("30s", 30_000), ("500ms", 500), ("7", 7), ("2 h", 7_200_000)]
)
def test_times(text: str, ms: int) -> None:
    assert duration_ms("x", text) == ms


def test_numbers_of_partitions() -> None:
    assert partition_numbers("x", '{"a":{"10":1,"2":-1}}') == {TopicPartition("a", 10): 1, TopicPartition("a", 2): -1}
