"""`ottla group`, `ottla txn` and `ottla consume --group` against a running broker, with members of other makes.

OTTLA_TEST_BOOTSTRAP=host:port names another broker, Apache Kafka for example.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla import Server
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.consumer import ConsumedRecord
from ottla.client.group_consumer import GroupConsumer
from ottla.client.group_membership import MembershipSettings
from ottla.client.groups import GroupAdmin
from ottla.client.offsets import EARLIEST
from ottla.client.settings import ClientSettings
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.batch import TRANSACTIONAL_BIT
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.produce_client import encode_request, parse_response
from ottla.wire.records import Record, build_batch
from tests.clients.test_cli import SECONDS_MAX, Shell

PARTITIONS = 4
RECORDS = 40


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    named = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if named:
        yield named
        return
    with Server(config={"group.initial.rebalance.delay.ms": 0}) as server:
        yield server.bootstrap_servers


@pytest.fixture
def ottla(bootstrap: str) -> Shell:
    return Shell(bootstrap)


@pytest.fixture
def topic(bootstrap: str) -> Iterator[str]:
    """A topic whose partitions have ten records each, one for each second since 1970."""
    name = f"groups-{uuid.uuid4().hex[:12]}"
    with Admin.connect(bootstrap) as admin:
        admin.create_topic(name, partitions=PARTITIONS)
        producer = Producer({"bootstrap.servers": bootstrap})
        for number in range(RECORDS):
            second, partition = divmod(number, PARTITIONS)
            producer.produce(name, str(number), partition=partition, timestamp=(second + 1) * 1_000)
        assert producer.flush(30) == 0
        yield name
        admin.delete_topic(name)


@pytest.fixture
def group_id() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@contextlib.contextmanager
def member(bootstrap: str, group_id: str, topic: str, **more: str) -> Iterator[Consumer]:
    """A consumer of another make that is in the group and has all its partitions."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": group_id, "auto.offset.reset": "earliest"}
    settings |= {"enable.auto.commit": False} | {key.replace("_", "."): value for key, value in more.items()}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    until(lambda: consumer.consume(1, timeout=0.1) and len(consumer.assignment()) == PARTITIONS)
    try:
        yield consumer
    finally:
        consumer.close()


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not true():
        assert time.monotonic() < deadline, "it did not come to pass"


def described(ottla: Shell, group_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ottla.output("group", "describe", group_id, "--output", "json"))
    return found


def committed(ottla: Shell, group_id: str) -> list[int | None]:
    return [entry["committed"] for entry in described(ottla, group_id)["offsets"]]


# Looking


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_in_use_is_shown_with_members_and_lag(
    ottla: Shell, bootstrap: str, topic: str, group_id: str, protocol: str
) -> None:
    with member(bootstrap, group_id, topic, group_protocol=protocol, client_id="here") as consumer:
        positions = consumer.assignment()
        for position in positions:
            position.offset = 4
        consumer.commit(offsets=positions, asynchronous=False)
        shown = described(ottla, group_id)
        assert (shown["type"], shown["state"], shown["lag"]) == (protocol, "Stable", RECORDS - 4 * PARTITIONS)
        assert shown["assignor"]
        (only,) = shown["members"]
        assert (only["client"], len(only["assignment"]), only["protocol"]) == ("here", PARTITIONS, protocol)
        assert only["host"]
        assert {(entry["committed"], entry["end"], entry["lag"]) for entry in shown["offsets"]} == {(4, 10, 6)}
        assert {entry["member"] for entry in shown["offsets"]} == {only["member"]}
        listed = json.loads(ottla.output("group", "list", "--state", "stable", "--type", protocol, "-o", "json"))
        assert group_id in [entry["group"] for entry in listed]
        assert group_id not in ottla.output("group", "list", "--state", "empty")
        for part in ("--state", "--offsets", "--members"):
            assert group_id in ottla.output("group", "describe", group_id, part, "-o", "table") or part != "--state"
    assert described(ottla, group_id)["state"] == "Empty"


def test_what_is_not_there_is_not_found(ottla: Shell, group_id: str) -> None:
    assert group_id.encode() in ottla.run("group", "describe", group_id, code=4).stderr
    ottla.run("group", "delete", group_id, code=4)
    ottla.run("group", "delete", group_id, "--if-exists")
    ottla.run("group", "offsets", "delete", group_id, "--topic", "t", code=4)
    ottla.run("group", "reset", group_id, "--all-topics", "--to-latest", code=4)
    ottla.run("txn", "describe", group_id, code=4)
    ottla.run("txn", "abort", group_id, code=4)


# Changing


def test_a_reset_shows_its_plan_and_then_does_it(ottla: Shell, topic: str, group_id: str) -> None:
    shown = ottla.run("group", "reset", group_id, "--topic", topic, "--to-offset", "7")
    assert shown.stdout.decode().splitlines() == [f"{topic}\t{number}\t\t7" for number in range(PARTITIONS)]
    assert b"--execute" in shown.stderr
    ottla.run("group", "describe", group_id, code=4)
    ottla.run("group", "reset", group_id, "--topic", topic, "--to-offset", "7", "--execute")
    assert committed(ottla, group_id) == [7] * PARTITIONS


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-current",), 5),
        (("--to-offset", "99"), 10),
        (("--to-datetime", "1970-01-01T00:00:04Z"), 3),
        (("--to-datetime", "2026-01-01"), 10),
        (("--by-duration", "P36500D"), 0),
        (("--shift-by", "-2"), 3),
        (("--shift-by", "2"), 7),
    ],
)
def test_a_reset_goes_where_it_is_told(
    ottla: Shell, topic: str, group_id: str, where: tuple[str, ...], offset: int
) -> None:
    ottla.run("group", "reset", group_id, "--topic", topic, "--to-offset", "5", "--execute")
    ottla.run("group", "reset", group_id, "--topic", f"{topic}:1,2", *where, "--execute")
    assert committed(ottla, group_id) == [5, offset, offset, 5]


def test_offsets_are_exported_and_brought_back(ottla: Shell, topic: str, group_id: str, tmp_path: Path) -> None:
    ottla.run("group", "reset", group_id, "--topic", f"{topic}:0", "--to-offset", "3", "--execute")
    saved = tmp_path / "offsets.csv"
    saved.write_text(ottla.output("group", "reset", group_id, "--all-topics", "--to-current", "--export"))
    assert saved.read_text() == f"{topic},0,3\n"
    ottla.run("group", "reset", group_id, "--all-topics", "--to-latest", "--execute")
    done = ottla.output("group", "reset", group_id, "--from-file", str(saved), "--execute", "-o", "json")
    assert json.loads(done)["executed"] is True
    assert committed(ottla, group_id) == [3]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_in_use_is_not_changed(ottla: Shell, bootstrap: str, topic: str, group_id: str, protocol: str) -> None:
    with member(bootstrap, group_id, topic, group_protocol=protocol) as consumer:
        consumer.commit(asynchronous=False)
        refused = ottla.run("group", "reset", group_id, "--topic", topic, "--to-latest", "--execute", code=1)
        assert b"while nobody is in the group" in refused.stderr
        assert b"stop its consumers" in ottla.run("group", "reset", group_id, "--topic", topic, "--to-latest").stderr
        assert b"stop its consumers" in ottla.run("group", "delete", group_id, code=1).stderr
        assert b"subscribed" in ottla.run("group", "offsets", "delete", group_id, "--topic", topic, code=1).stderr
        with Cluster(ClientSettings.of(bootstrap)) as cluster, pytest.raises(Exception, match="stop its consumers"):
            GroupAdmin(cluster).commit_offsets(group_id, {TopicPartition(topic, 0): 1})
    ottla.run("group", "reset", group_id, "--topic", topic, "--to-latest", "--execute")
    assert committed(ottla, group_id) == [10] * PARTITIONS


def test_offsets_and_groups_are_deleted(ottla: Shell, topic: str, group_id: str) -> None:
    ottla.run("group", "reset", group_id, "--topic", topic, "--to-offset", "1", "--execute")
    assert "1 offset" in ottla.output("group", "offsets", "delete", group_id, "--topic", f"{topic}:2")
    assert [entry["partition"] for entry in described(ottla, group_id)["offsets"]] == [0, 1, 3]
    assert "deleted" in ottla.output("group", "delete", group_id)
    ottla.run("group", "describe", group_id, code=4)


# Reading as a member


def test_a_group_goes_on_where_it_was(ottla: Shell, topic: str, group_id: str) -> None:
    def read(*more: str) -> list[str]:
        return ottla.output("consume", topic, "--group", group_id, "-f", "%p/%o\\n", *more).splitlines()

    first = read("-n", "7")
    assert len(first) == 7
    rest = read()
    assert sorted(first + rest) == sorted(f"{p}/{o}" for p in range(PARTITIONS) for o in range(10))
    assert read() == []
    ottla.run("produce", topic, "--partition", "0", stdin=b"new\n")
    assert read() == ["0/10"]
    shown = described(ottla, group_id)
    assert (shown["state"], shown["lag"], shown["members"]) == ("Empty", 0, [])


def test_a_new_group_starts_where_it_is_told_to(ottla: Shell, topic: str, group_id: str) -> None:
    assert ottla.output("consume", topic, "--group", group_id, "--from", "end") == ""
    assert committed(ottla, group_id) == [10] * PARTITIONS
    read = ottla.output("consume", topic, "--group", f"{group_id}-2", "--from", "-1", "-f", "%o\\n")
    assert read.split() == ["9"] * PARTITIONS


def test_ctrl_c_commits_what_was_shown_and_leaves(ottla: Shell, topic: str, group_id: str) -> None:
    with ottla.started("consume", topic, "--group", group_id, "--follow", "-f", "%s\\n") as following:
        assert following.stdout is not None
        shown = {following.stdout.readline().strip() for _ in range(RECORDS)}
        assert len(shown) == RECORDS
        following.send_signal(signal.SIGINT)
        assert following.wait(SECONDS_MAX) == 130
    left = described(ottla, group_id)
    assert (left["members"], left["lag"]) == ([], 0)


def test_members_of_several_makes_share_a_topic(bootstrap: str, topic: str, group_id: str) -> None:
    """Nobody reads what another has read, while one comes and one goes."""
    settings = MembershipSettings(group_id=group_id, topics=(topic,), heartbeat_interval_ms=100)

    def beginning(partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, EARLIEST)

    seen: list[ConsumedRecord] = []
    with Cluster(ClientSettings.of(bootstrap)) as cluster:
        with GroupConsumer(cluster, settings, beginning) as ours:
            until(lambda: _read(ours, seen) and len(seen) == RECORDS)
            other = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, "auto.offset.reset": "earliest"})
            other.subscribe([topic])
            until(lambda: (other.poll(0.05), _read(ours, seen), len(other.assignment()) == len(ours.assigned) == 2)[-1])
            other.close()
            until(lambda: _read(ours, seen) and len(ours.assigned) == PARTITIONS)
        assert ours.rebalances >= 3
        assert not ours.repeated
        assert len(seen) == RECORDS
        offsets = GroupAdmin(cluster).fetch_offsets(group_id)
        assert {entry.offset for entry in offsets.values()} == {10}


def _read(consumer: GroupConsumer, seen: list[ConsumedRecord]) -> bool:
    seen += consumer.poll(50)
    consumer.processed()
    return True


# Transactions


def test_an_open_transaction_is_shown_and_aborted(ottla: Shell, bootstrap: str, topic: str) -> None:
    name = f"t-{uuid.uuid4().hex[:12]}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 60_000})
    producer.init_transactions(30)
    assert "no transaction" in ottla.output("txn", "abort", name)
    producer.begin_transaction()
    producer.produce(topic, "never", partition=1)
    assert producer.flush(30) == 0
    shown = json.loads(ottla.output("txn", "describe", name, "--output", "json"))
    assert (shown["state"], shown["partitions"]) == ("Ongoing", [{"topic": topic, "partition": 1}])
    assert name in [row["transactional_id"] for row in json.loads(ottla.output("txn", "list", "-o", "json"))]
    assert name not in ottla.output("txn", "list", "--running-for", "1h")
    assert name in ottla.output("txn", "list", "--state", "ongoing", "--producer-id", str(shown["producer_id"]))
    assert topic not in ottla.output("txn", "hanging", "--topic", topic, "--older-than", "0ms")
    known = ("txn", "abort", "--topic", topic, "--partition", "1", "--start-offset", "10")
    assert name.encode() in ottla.run(*known, code=1).stderr
    assert "aborted" in ottla.output("txn", "abort", name)
    with pytest.raises(Exception, match=r"(?i)fenced|epoch"):
        producer.commit_transaction(30)
    assert ottla.output("consume", topic, "--committed", "--partition", "1", "--from", "10") == ""


def test_a_hanging_transaction_is_found_and_aborted(ottla: Shell, bootstrap: str, topic: str) -> None:
    with Cluster(ClientSettings.of(bootstrap)) as cluster:
        with without_verification(cluster):
            write_without_a_coordinator(cluster, TopicPartition(topic, 2))
        (found,) = json.loads(ottla.output("txn", "hanging", "--topic", topic, "--older-than", "0ms", "-o", "json"))
        assert (found["partition"], found["start_offset"]) == (2, 10)
        assert topic not in ottla.output("txn", "hanging", "--topic", f"{topic}:0", "--older-than", "0ms")
        where = ("--topic", topic, "--partition", "2", "--start-offset")
        ottla.run("txn", "abort", *where, "9", code=4)
        assert "aborted" in ottla.output("txn", "abort", *where, "10")
        assert ottla.output("txn", "hanging", "--topic", topic, "--older-than", "0ms") == ""
        assert len(ottla.output("consume", topic, "--committed", "--partition", "2").splitlines()) == 10


@contextlib.contextmanager
def without_verification(cluster: Cluster) -> Iterator[None]:
    """Brokers ask the coordinator before they open a transaction; a hanging one has to come from before that."""
    admin = Admin(cluster)
    key = "transaction.partition.verification.enable"
    broker = str(cluster.brokers()[0].node_id)
    admin.alter_configs(ResourceType.BROKER, broker, set_to={key: "false"})
    try:
        yield
    finally:
        admin.alter_configs(ResourceType.BROKER, broker, unset=[key])


def write_without_a_coordinator(cluster: Cluster, partition: TopicPartition) -> None:
    """A record of a transaction that no coordinator has heard of."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    identity = cluster.call_any(request, InitProducerIdResponse)
    record = Record(0, time.time_ns() // 1_000_000, None, b"left behind", [])
    batch = build_batch(
        [record],
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        base_sequence=0,
        attributes=TRANSACTIONAL_BIT,
    )
    version = 11
    body = encode_request(version, [(partition.topic, [(partition.partition, batch)])], transactional_id="left behind")

    def written() -> bool:
        connection = cluster.leader_connection(partition)
        pending = connection.send_raw(0, version, body, lambda view: parse_response(view, 0, version))
        ((_, (result,)),) = connection.receive(pending).topics
        assert result.error_code in (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return result.error_code == ErrorCode.NONE

    until(written)  # a broker needs a moment to learn of its new config
