"""A broker for tests with groups and transactions: it waits for nobody, so that a test may be short.

OTTLA_TEST_BOOTSTRAP=host:port names another one, Apache Kafka for example, with the same settings.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients.members import Members, members_of, readable
from tests.scenarios.brokers import BrokerProcess

PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "1500",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}

MakeTopic = Callable[..., str]

HERE = Path(__file__).parent
FORGOTTEN_SOCKET = (
    r"ignore:Exception ignored in. <socket.socket fd=.*laddr=..127\.0\.0\.1., [0-9]+\)>"
    ":pytest.PytestUnraisableExceptionWarning"
)
"""One with no far end: kafka-python forgets it when it is closed while it connects, as after a broker's restart."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.filterwarnings(FORGOTTEN_SOCKET))


@pytest.fixture(scope="session")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with short waits."""
    named = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if named:
        yield named
        return
    with BrokerProcess(tmp_path_factory.mktemp("quick"), PROPERTIES) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def members(quick: str) -> Iterator[Members]:
    with members_of(quick) as members:
        yield members


@pytest.fixture
def group_id(request: pytest.FixtureRequest) -> str:
    return f"{readable(request.node.name)}-{uuid.uuid4().hex[:6]}"


@pytest.fixture
def make_topic(quick: str, group_id: str) -> MakeTopic:
    """Makes a topic and fills it: `partitions`, and `records` numbered from 0 in turn over the partitions."""

    def make(partitions: int = 4, records: int = 0, name: str = "") -> str:
        return fill(quick, create(quick, name or group_id, partitions), partitions, range(records))

    return make


def create(bootstrap: str, topic: str, partitions: int = 1, config: dict[str, str] | None = None) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config or {})])[topic].result(10)
    return topic


def fill(bootstrap: str, topic: str, partitions: int, numbers: range) -> str:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in numbers:
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(10) == 0
    return topic
