"""Records with a key must land where Kafka's Java clients put them, or a key's order is lost between clients."""

from __future__ import annotations

import pytest

from ottla.client.partitioner import StickyPartitions, murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "signed_hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_hashes_as_in_java(key: bytes, signed_hash: int) -> None:
    assert murmur2(key) == signed_hash & 0xFFFFFFFF


def test_a_key_goes_where_another_client_sends_it() -> None:
    kafka_partitioner = pytest.importorskip("kafka.partitioner.default")
    for number in range(500):
        key = b"key-%d" % number * (number % 7)
        assert murmur2(key) == kafka_partitioner.murmur2(key) & 0xFFFFFFFF


def test_every_key_has_one_of_the_partitions() -> None:
    used = {partition_for_key(b"%d" % number, 5) for number in range(200)}
    assert used == set(range(5))


def test_records_without_a_key_stay_together_until_the_batch_is_full() -> None:
    sticky = StickyPartitions(seed=1)
    first = sticky.current("orders", 6)
    assert {sticky.current("orders", 6) for _ in range(20)} == {first}
    sticky.batch_full("orders", first, 6)
    assert sticky.current("orders", 6) != first


def test_records_without_a_key_reach_every_partition_in_time() -> None:
    sticky = StickyPartitions(seed=2)
    seen = set()
    for _ in range(100):
        partition = sticky.current("orders", 4)
        seen.add(partition)
        sticky.batch_full("orders", partition, 4)
    assert seen == set(range(4))


def test_a_topic_with_one_partition_keeps_using_it() -> None:
    sticky = StickyPartitions()
    sticky.batch_full("orders", sticky.current("orders", 1), 1)
    assert sticky.current("orders", 1) == 0


def test_a_full_batch_of_keyed_records_moves_nothing() -> None:
    sticky = StickyPartitions(seed=3)
    current = sticky.current("orders", 6)
    sticky.batch_full("orders", (current + 1) % 6, 6)
    assert sticky.current("orders", 6) == current
