"""Retention and compaction, as a running broker does them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ottla
from ottla.client.admin import Admin
from ottla.client.offsets import EARLIEST
from ottla.model.configs.definition import ResourceType
from ottla.model.ids import TopicPartition
from ottla.wire.records import Record, build_batch
from tests.scenarios.raw_client import RawClient

CONFIG = {"log.cleaner.backoff.ms": 100, "log.retention.check.interval.ms": 100}


@pytest.fixture(scope="module")
def server() -> Iterator[ottla.Server]:
    with ottla.Server(config=CONFIG) as server:
        yield server


@pytest.fixture
def client(server: ottla.Server) -> Iterator[RawClient]:
    client = RawClient.connect(server.bootstrap_servers)
    yield client
    client.close()


def create(server: ottla.Server, name: str, **configs: str) -> None:
    with Admin.connect(server.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=1, configs={key.replace("_", "."): value for key, value in configs.items()})


def write_keyed(client: RawClient, topic: str, pairs: list[tuple[bytes, bytes | None]], codec: int = 0) -> None:
    now_ms = int(time.time() * 1000)
    records = [Record(number, now_ms, key, value, ()) for number, (key, value) in enumerate(pairs)]
    code, _ = client.produce_batch(topic, build_batch(records, codec=codec))
    assert code == 0


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("codec", [0, 3])
def test_a_compacted_topic_keeps_the_last_value_of_each_key(
    server: ottla.Server, client: RawClient, codec: int
) -> None:
    topic = f"latest-{codec}"
    create(
        server,
        topic,
        cleanup_policy="compact",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
        file_delete_delay_ms="0",
    )
    for round_number in range(20):
        write_keyed(client, topic, [(b"k%d" % key, b"%d" % round_number) for key in range(50)], codec)
    write_keyed(client, topic, [(b"k0", None)], codec)
    time.sleep(0.15)  # Older than segment.ms, so that the next record seals the segment.
    write_keyed(client, topic, [(b"end", b"end")], codec)

    def is_compacted() -> bool:
        return len(client.values(topic)) <= 51

    wait_for(is_compacted, "the compaction of 20 rounds of 50 keys")
    values = client.values(topic)
    assert values.count(b"19") == 49
    assert values.count(None) == 1, "the tombstone stays for delete.retention.ms"
    assert values[-1] == b"end"


def test_old_segments_go_by_time_and_by_size(server: ottla.Server, client: RawClient) -> None:
    create(server, "by-time", retention_ms="200", segment_ms="100", file_delete_delay_ms="0")
    client.produce("by-time", b"old")
    wait_for(
        lambda: client.values("by-time", offset=1) == [] and starts_at(server, "by-time") == 1, "retention by time"
    )
    assert client.produce("by-time", b"new") == (0, 1)

    create(server, "by-size", retention_bytes="1500000", segment_bytes="1048576", file_delete_delay_ms="0")
    for _ in range(60):
        client.produce("by-size", b"x" * 100_000)
    wait_for(lambda: 0 < starts_at(server, "by-size") < 60, "retention by size")
    left = sum(path.stat().st_size for path in Path(server.data, "by-size-0").glob("*.log"))
    assert left < 3_200_000


def starts_at(server: ottla.Server, topic: str) -> int:
    with Admin.connect(server.bootstrap_servers) as admin:
        return admin.list_offsets({TopicPartition(topic, 0): EARLIEST})[TopicPartition(topic, 0)].offset


def test_a_deleted_topics_files_stay_for_the_brokers_delay_and_no_longer_than_to_the_next_start(tmp_path: Path) -> None:
    def left() -> set[str]:
        return {path.name.split(".")[0] for path in tmp_path.glob("*-delete")}

    with ottla.Server(data=tmp_path) as server, Admin.connect(server.bootstrap_servers) as admin:
        for name in ("regretted", "short"):
            client = RawClient.connect(server.bootstrap_servers)
            create(server, name, file_delete_delay_ms="0")  # A topic's own is for its segments, as in Apache Kafka.
            client.produce(name, b"x" * 1000)
            client.close()
        admin.delete_topic("regretted")
        assert left() == {"regretted-0"}
        (kept,) = tmp_path.glob("regretted-0.*-delete/*.log")
        assert kept.stat().st_size > 1000
        create(server, "regretted")
        assert starts_at(server, "regretted") == 0

        admin.alter_configs(ResourceType.BROKER, "", set_to={"log.segment.delete.delay.ms": "0"})
        admin.delete_topic("short")
        wait_for(lambda: left() == {"regretted-0"}, "the removal of a topic that was deleted with no delay")
    assert left() == {"regretted-0"}, "a stop neither waits nor removes"
    with ottla.Server(data=tmp_path):
        assert left() == set()
