"""Apache Kafka's own tools for groups and transactions, and its Java clients in both protocols.

A JVM takes a second or more to start, so one test asks many things, and tools that can run at once do.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Producer

import ottla
from tests.clients.conftest import PROPERTIES, create, fill
from tests.clients.kafka_tools import KafkaTools, find_kafka_tools
from tests.clients.members import members_of, until
from tests.clients.test_groups import committed_offsets
from tests.clients.test_transactions import ConfluentTransactions, read

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("kafka-tools")]

GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE_CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"
VERIFIABLE_PRODUCER = "org.apache.kafka.tools.VerifiableProducer"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ottla.Server]:
    with ottla.Server(data=tmp_path_factory.mktemp("group-tools"), config=PROPERTIES) as server:
        yield server


@pytest.fixture(scope="module")
def tools(server: ottla.Server) -> KafkaTools:
    return find_kafka_tools(server.bootstrap_servers)


def side_by_side(*calls: Callable[[], str]) -> list[str]:
    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(lambda call: call(), calls))


def row(printed: str, *words: str) -> list[str]:
    """The columns of the one line that has all the words."""
    (found,) = [line.split() for line in printed.splitlines() if set(words) <= set(line.split())]
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_consumers_read_in_a_group(tools: KafkaTools, protocol: str) -> None:
    servers, topic, group = tools.bootstrap_servers, f"read-{protocol}", f"readers-{protocol}"
    create(servers, topic, 2)
    made = tools.ask(VERIFIABLE_PRODUCER, "--topic", topic, "--max-messages", "200")
    assert json.loads(made.splitlines()[-1])["acked"] == 200

    counted, verified = side_by_side(
        lambda: tools.ask(
            CONSOLE_CONSUMER,
            *("--topic", topic, "--group", f"console-{protocol}", "--from-beginning", "--max-messages", "200"),
            *("--command-property", f"group.protocol={protocol}"),
        ),
        lambda: tools.ask(
            VERIFIABLE_CONSUMER,
            *("--topic", topic, "--group-id", group, "--group-protocol", protocol.upper(), "--max-messages", "200"),
        ),
    )
    assert "Processed a total of 200 messages" in counted
    events = [json.loads(line) for line in verified.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 200
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert sum(committed_offsets(servers, group).values()) == 200
    assert sum(committed_offsets(servers, f"console-{protocol}").values()) == 200


def test_groups_are_listed_described_reset_and_deleted(tools: KafkaTools) -> None:
    servers = tools.bootstrap_servers
    fill(servers, create(servers, "orders", 2), 2, range(20))
    with members_of(servers) as members:
        for protocol in ("classic", "consumer"):
            member = members.confluent(protocol, f"shop-{protocol}", ["orders"], client_id="till")
            until(lambda member=member: len(member.reads) == 20, member)
            member.commit({("orders", 0): 10, ("orders", 1): 4})
        listed, states, at, who, refused = side_by_side(
            lambda: tools.ask(GROUPS, "--list", "--state"),
            lambda: tools.ask(GROUPS, "--describe", "--all-groups", "--state"),
            lambda: tools.ask(GROUPS, "--describe", "--group", "shop-classic", "--group", "shop-consumer"),
            lambda: tools.ask(GROUPS, "--describe", "--group", "shop-consumer", "--members", "--verbose"),
            lambda: tools.ask(GROUPS, "--delete", "--group", "shop-classic"),
        )
    assert row(listed, "shop-classic")[-1] == "Stable"
    assert "Stable" in row(states, "shop-consumer")
    for group in ("shop-classic", "shop-consumer"):
        assert row(at, group, "orders", "1")[3:6] == ["4", "10", "6"]
    assert "till" in row(who, "shop-consumer")
    assert "orders:0,1" in who.replace("orders(0,1)", "orders:0,1")
    assert "GroupNotEmptyException" in refused

    reset = ("--reset-offsets", "--group", "shop-classic", "--topic", "orders")
    dry, _, _ = side_by_side(
        lambda: tools.ask(GROUPS, *reset, "--to-earliest", "--dry-run"),
        lambda: tools.ask(GROUPS, "--delete-offsets", "--group", "shop-consumer", "--topic", "orders:0"),
        lambda: tools.ask(GROUPS, *reset, "--shift-by", "-3", "--execute"),
    )
    assert row(dry, "orders", "1")[-1] == "0"
    assert committed_offsets(servers, "shop-classic") == {("orders", 0): 7, ("orders", 1): 1}
    assert committed_offsets(servers, "shop-consumer") == {("orders", 1): 4}
    assert "was successful" in tools.ask(GROUPS, "--delete", "--group", "shop-classic", "--group", "shop-consumer")


def test_transactions_are_listed_described_found_and_aborted(tools: KafkaTools) -> None:
    servers = tools.bootstrap_servers
    create(servers, "ledger")
    producer = ConfluentTransactions(servers, "bookkeeper", transaction_timeout_ms=60_000)
    producer.begin()
    producer.send("ledger", range(5))
    place = ("--topic", "ledger", "--partition", "0")
    listed, described, producers, hanging = side_by_side(
        lambda: tools.ask(TRANSACTIONS, "list"),
        lambda: tools.ask(TRANSACTIONS, "describe", "--transactional-id", "bookkeeper"),
        lambda: tools.ask(TRANSACTIONS, "describe-producers", *place),
        lambda: tools.ask(TRANSACTIONS, "find-hanging", "--broker-id", "1"),
    )
    assert "Ongoing" in row(listed, "bookkeeper")
    assert "ledger-0" in row(described, "bookkeeper")
    producer_id, start = row(listed, "bookkeeper")[2], row(producers, "0")[-1]
    assert row(producers, producer_id)[0] == producer_id
    assert start == "0"
    assert "ledger" not in hanging, "a transaction that its coordinator knows of does not hang"
    tools.ask(TRANSACTIONS, "abort", *place, "--start-offset", start)
    assert read(servers, "ledger") == []


def test_perf_consumer_and_get_offsets(tools: KafkaTools) -> None:
    servers = tools.bootstrap_servers
    create(servers, "fast", 2)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for number in range(20_000):
        producer.produce("fast", b"x" * 100, partition=number % 2)
        producer.poll(0)
    assert producer.flush(20) == 0
    consumed, listed = side_by_side(
        lambda: tools.ask(
            "org.apache.kafka.tools.ConsumerPerformance",
            *("--topic", "fast", "--num-records", "20000", "--group", "racers", "--hide-header"),
        ),
        lambda: tools.ask("org.apache.kafka.tools.GetOffsetShell", "--topic", "fast", "--time", "-1"),
    )
    assert "20000" in re.split(r",\s*", consumed.strip().splitlines()[-1])
    assert sorted(line for line in listed.splitlines() if line.startswith("fast:")) == ["fast:0:10000", "fast:1:10000"]


@pytest.mark.parametrize("protocol", ["CLASSIC", "CONSUMER"])
def test_two_java_members_share_and_the_other_takes_over(tools: KafkaTools, protocol: str) -> None:
    servers, topic = tools.bootstrap_servers, f"shared-{protocol.lower()}"
    create(servers, topic, 4)
    command = [*("java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{tools.jars}/*"), VERIFIABLE_CONSUMER]
    command += ["--bootstrap-server", servers, "--topic", topic, "--group-id", topic, "--group-protocol", protocol]
    running = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    try:
        wait_for_shares(servers, topic, [2, 2])
        running[0].terminate()
        wait_for_shares(servers, topic, [4])
    finally:
        for process in running:
            process.kill()
            process.wait()


def wait_for_shares(servers: str, group_id: str, shares: list[int]) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": servers})
    deadline = time.monotonic() + 30
    found: list[int] = []
    while sorted(found) != shares:
        assert time.monotonic() < deadline, found
        described = admin.describe_consumer_groups([group_id])[group_id].result(10)
        found = [len(member.assignment.topic_partitions) for member in described.members]
        time.sleep(0.05)
