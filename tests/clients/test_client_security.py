"""The client of this package with an Apache Kafka that wants to know who comes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.errors import AuthenticationError, ClientError
from ottla.client.fetching import FetchSettings
from ottla.client.partition_reader import PartitionReader
from ottla.client.settings import Address, ClientSettings
from ottla.model.ids import TopicPartition
from tests.clients.secure_kafka import LISTENERS, PASSWORD, SESSION_MS, SecureKafka, secure_kafka

TOPIC = "secrets"
RECORDS, VALUE = 300, b"0123456789" * 300
WAYS = [(name, "PLAIN") for name in LISTENERS if name != "CONTROLLER"]
WAYS += [("BOTH", "SCRAM-SHA-256"), ("BOTH", "SCRAM-SHA-512"), ("LOGIN", "SCRAM-SHA-512")]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(tmp_path_factory.mktemp("secure") / "kafka") as running:
        plain = {"bootstrap.servers": f"127.0.0.1:{running.ports['PLAINTEXT']}"}
        admin = AdminClient(plain)
        for made in admin.create_topics([NewTopic(TOPIC, 1, 1)]).values():
            made.result(60)
        producer = Producer(plain)
        for _ in range(RECORDS):
            producer.produce(TOPIC, VALUE, partition=0)
        assert producer.flush(60) == 0
        yield running


def settings(kafka: SecureKafka, listener: str, mechanism: str = "PLAIN", password: str = "") -> ClientSettings:
    right = PASSWORD if mechanism == "PLAIN" else "pencil"
    return ClientSettings.from_kafka(kafka.options(listener, mechanism, password or right))


def bytes_read(given: ClientSettings) -> int:
    with Cluster(given) as cluster:
        place = TopicPartition(TOPIC, 0)
        fetches = FetchSettings(partition_bytes_max=100_000)
        reader = PartitionReader(cluster, place, start=0, end=RECORDS, settings=fetches, stall_ms_max=60_000)
        return sum(len(fetched.records) for fetched in reader)


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_everything_is_read_in_every_way(kafka: SecureKafka, listener: str, mechanism: str) -> None:
    assert bytes_read(settings(kafka, listener, mechanism)) > RECORDS * len(VALUE)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_wrong_password_fails_at_once_with_kafkas_words(kafka: SecureKafka, mechanism: str) -> None:
    began = time.monotonic()
    with pytest.raises(AuthenticationError, match="does not accept user 'alice': Authentication failed"):
        bytes_read(settings(kafka, "BOTH", mechanism, "wrong"))
    assert time.monotonic() - began < 30


def test_no_key_where_one_is_wanted(kafka: SecureKafka) -> None:
    options = kafka.options("TLS") | {"bootstrap.servers": kafka.options("MUTUAL")["bootstrap.servers"]}
    with pytest.raises(ClientError):
        Connection.open(Address("127.0.0.1", kafka.ports["MUTUAL"]), ClientSettings.from_kafka(options))


def test_a_login_that_runs_out_is_made_anew(kafka: SecureKafka) -> None:
    """Three times as long as a login lasts, with pauses in which the connection lies still."""
    given = settings(kafka, "EXPIRING")
    connections = set()
    with Cluster(given) as cluster:
        end = time.monotonic() + 3 * SESSION_MS / 1000
        while time.monotonic() < end:
            cluster.refresh((TOPIC,))
            connections.add(id(cluster.any_connection()))
            time.sleep(0.3)
        assert cluster.topic(TOPIC).name == TOPIC
    assert len(connections) >= 2
