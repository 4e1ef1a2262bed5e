"""How large records are."""

from __future__ import annotations

from collections.abc import Callable

from ottla.client.cluster import Cluster
from ottla.client.producer import Producer
from ottla.model.ids import TopicPartition
from pyspark_ottla.options import stream_options
from pyspark_ottla.sampling import bytes_per_offset


def test_the_size_is_about_that_of_the_records(bootstrap: str, cluster: Cluster, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    with Producer(cluster) as producer:
        for _ in range(100):
            producer.send(topic, b"x" * 500, partition=1)
    options = stream_options({"kafka.bootstrap.servers": bootstrap, "subscribe": topic})
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    size = bytes_per_offset(cluster, {first: 0, second: 0}, {first: 0, second: 100}, options)
    assert 500 < size < 600
    assert bytes_per_offset(cluster, {first: 0}, {first: 0}, options) == 0
    assert bytes_per_offset(cluster, {}, {}, options) == 0
