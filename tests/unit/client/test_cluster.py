"""What a user would lose: a client that finds its way when brokers move, and says so when it cannot."""

from __future__ import annotations

import time

import pytest

from ottla.cli.free_ports import free_port, free_ports
from ottla.client.cluster import Cluster
from ottla.client.errors import (
    BrokerError,
    CannotConnectError,
    ConnectionLostError,
    NotFoundError,
    broker_error,
)
from ottla.client.settings import ClientSettings, parse_bootstrap
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from ottla.wire.schema import encode
from tests.unit.client.scripted_broker import API_VERSIONS, METADATA, NODE_ID, TOPIC, ScriptedBroker


def test_one_live_address_of_the_list_is_enough() -> None:
    with ScriptedBroker() as broker:
        addresses = parse_bootstrap(f"127.0.0.1:{free_port()},{broker.bootstrap}")
        with Cluster(ClientSettings(bootstrap=addresses)) as cluster:
            assert [found.node_id for found in cluster.brokers()] == [NODE_ID]


def test_no_live_address_fails_at_once_and_names_them_all() -> None:
    ports = free_ports(2)
    started = time.monotonic()
    with (
        Cluster(ClientSettings.of(",".join(f"127.0.0.1:{port}" for port in ports))) as cluster,
        pytest.raises(CannotConnectError) as caught,
    ):
        cluster.topic(TOPIC)
    assert all(str(port) in str(caught.value) for port in ports)
    assert time.monotonic() - started < 5


def test_metadata_is_asked_for_once_and_again_when_it_is_known_to_be_old() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        cluster.topic(TOPIC)
        cluster.topic(TOPIC)
        assert broker.served.count(METADATA) == 1
        cluster.forget(TOPIC)
        cluster.topic(TOPIC)
        assert broker.served.count(METADATA) == 2


def test_one_connection_serves_for_bootstrap_and_broker() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        first = cluster.any_connection()
        assert cluster.leader_connection(TopicPartition(TOPIC, 0)) is first


def test_a_topic_that_is_not_there_is_said_to_be_missing_without_waiting() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        with pytest.raises(NotFoundError, match="nothing-here"):
            cluster.topic("nothing-here")
        assert broker.served.count(METADATA) == 1


def test_a_partition_that_is_not_there_names_those_that_are() -> None:
    with (
        ScriptedBroker(partitions=3) as broker,
        Cluster(broker.settings()) as cluster,
        pytest.raises(NotFoundError, match="0 to 2"),
    ):
        cluster.leader(TopicPartition(TOPIC, 3))


def test_a_topic_without_a_leader_is_waited_for() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        ready = broker.answers[METADATA]
        electing = MetadataResponseTopic(name=TOPIC, error_code=ErrorCode.LEADER_NOT_AVAILABLE)
        node = MetadataResponseBroker(node_id=NODE_ID, host="127.0.0.1", port=broker.port)
        answers = [MetadataResponse(brokers=[node], topics=[electing])] * 2

        def elect(version: int, frame: memoryview, position: int) -> bytes | None:
            return encode(answers.pop(), version) if answers else ready(version, frame, position)

        broker.answers[METADATA] = elect
        assert cluster.topic(TOPIC).has_leaders


def test_an_advertised_address_that_is_out_of_reach_says_what_to_change() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        elsewhere = MetadataResponseBroker(node_id=NODE_ID, host="127.0.0.1", port=free_port())
        answer = MetadataResponse(brokers=[elsewhere], topics=[])
        broker.answers[METADATA] = lambda version, frame, position: encode(answer, version)
        cluster.brokers()
        with pytest.raises(CannotConnectError, match=r"advertised\.listeners"):
            cluster.connection(NODE_ID)


def test_the_next_leader_is_found_when_the_last_one_is_gone() -> None:
    partition = TopicPartition(TOPIC, 0)
    with ScriptedBroker(node_id=8) as survivor:
        with ScriptedBroker() as leader:
            survivor.leader = leader
            cluster = Cluster(survivor.settings())
            assert cluster.leader_connection(partition).address.port == leader.port
        survivor.leader = survivor
        with cluster:
            found = cluster.retry(lambda: cluster.leader_connection(partition))
            assert found.address.port == survivor.port


def test_a_broker_that_dies_during_the_first_exchange_is_tried_again() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        cluster.connection(NODE_ID).close()
        healthy, dying = broker.answers[API_VERSIONS], [True, True]

        def die(version: int, frame: memoryview, position: int) -> bytes | None:
            return None if dying and dying.pop() else healthy(version, frame, position)

        broker.answers[API_VERSIONS] = die
        assert cluster.retry(lambda: cluster.connection(NODE_ID)).usable()


def test_a_connection_that_was_closed_while_idle_is_opened_again() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        cluster.connection(NODE_ID).close()
        assert cluster.connection(NODE_ID).usable()


def test_an_error_that_passes_is_retried_and_one_that_stays_is_raised() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        errors = [broker_error(ErrorCode.NOT_CONTROLLER, "x"), broker_error(ErrorCode.REQUEST_TIMED_OUT, "x")]

        def attempt() -> str:
            if errors:
                raise errors.pop()
            return "done"

        assert cluster.retry(attempt) == "done"
        errors.append(broker_error(ErrorCode.POLICY_VIOLATION, "x"))
        with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
            cluster.retry(attempt)


def test_what_must_not_happen_twice_is_not_repeated_after_the_connection_broke() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings()) as cluster:
        attempts = 0

        def attempt() -> None:
            nonlocal attempts
            attempts += 1
            raise ConnectionLostError("gone")

        with pytest.raises(ConnectionLostError):
            cluster.retry(attempt, repeatable=False)
        assert attempts == 1


def test_retries_end_when_the_time_for_a_call_is_over() -> None:
    with ScriptedBroker() as broker, Cluster(broker.settings(api_timeout_ms=100)) as cluster:

        def attempt() -> None:
            raise broker_error(ErrorCode.REQUEST_TIMED_OUT, "slow")

        with pytest.raises(BrokerError, match="slow"):
            cluster.retry(attempt)
