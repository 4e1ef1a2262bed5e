"""Voters, roles and cluster ids, as a config says them."""

from __future__ import annotations

import pytest

from ottla.model.configs.quorum import Address, Voter
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ConfigError

THREE = "1@a:9092,2@b:9092,3@[::1]:9092"


def config(**keys: str) -> BrokerConfig:
    return BrokerConfig.from_properties({key.replace("_", "."): value for key, value in keys.items()})


def test_voters_are_parsed() -> None:
    assert config(controller_quorum_voters=THREE).controller_quorum_voters == (
        Voter(1, "a", 9092),
        Voter(2, "b", 9092),
        Voter(3, "::1", 9092),
    )
    servers = config(controller_quorum_bootstrap_servers="a:1,[::1]:2").controller_quorum_bootstrap_servers
    assert [str(server) for server in servers] == ["a:1", "[::1]:2"]
    assert servers[0] == Address("a", 1)


@pytest.mark.parametrize(
    ("listeners", "servers", "asked"),
    [
        ("PLAINTEXT://:9092,CONTROLLER://:9093", "localhost:9093", 0),
        ("PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093", "127.0.0.1:9093", 0),
        ("PLAINTEXT://one.example:9092,CONTROLLER://one.example:9093", "one.example:9093", 0),
        ("PLAINTEXT://one.example:9092,CONTROLLER://one.example:9093", "two.example:9093", 1),
        ("PLAINTEXT://one.example:9092,CONTROLLER://one.example:9093", "one.example:9093,two.example:9093", 2),
        ("PLAINTEXT://:9092,CONTROLLER://:9093", "localhost:9193", 1),
    ],
)
def test_a_node_whose_bootstrap_servers_are_itself_is_alone(listeners: str, servers: str, asked: int) -> None:
    """Kafka's own server.properties says it this way, and a node that asked itself who the voters are would wait."""
    told = config(
        listeners=listeners,
        advertised_listeners=listeners.split(",")[0].replace("//:", "//localhost:"),
        controller_listener_names="CONTROLLER",
        controller_quorum_bootstrap_servers=servers,
    )
    assert len(told.controller_quorum_bootstrap_servers) == asked


def test_a_lone_node_needs_nothing() -> None:
    alone = config()
    assert alone.controller_quorum_voters == ()
    assert alone.cluster_id is None
    assert alone.inter_broker_listener_name == "PLAINTEXT"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"controller_quorum_voters": "1@a"}, "host:port"),
        ({"controller_quorum_voters": "a:9092"}, "id@host:port"),
        ({"controller_quorum_voters": "1@a:0"}, "host:port"),
        ({"controller_quorum_voters": "1@a:99999"}, "host:port"),
        ({"controller_quorum_voters": "1@a:1,1@b:1"}, "of its own"),
        ({"controller_quorum_voters": "1@a:1,2@a:1"}, "of its own"),
        ({"controller_quorum_voters": THREE, "node_id": "4"}, "not among"),
        ({"controller_quorum_voters": THREE, "process_roles": "broker"}, "without controller"),
        ({"process_roles": "broker"}, "where the controllers are"),
        ({"controller_quorum_voters": THREE, "controller_quorum_bootstrap_servers": "a:1"}, "not both"),
        ({"cluster_id": "a b"}, "new-id"),
        ({"broker_session_timeout_ms": "3000"}, "twice"),
        ({"inter_broker_listener_name": "INTERNAL"}, "advertised.listeners"),
    ],
)
def test_what_does_not_go_together_is_named(keys: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(**keys)


def test_a_node_of_each_role() -> None:
    assert config(controller_quorum_voters=THREE, node_id="4", process_roles="broker").node_id == 4
    controller = config(
        controller_quorum_voters=THREE, process_roles="controller", controller_listener_names="PLAINTEXT"
    )
    assert controller.inter_broker_listener_name == ""


def test_throttles_are_none_until_they_are_set() -> None:
    rate = "follower.replication.throttled.rate"
    assert config().follower_replication_throttled_rate == 2**63 - 1
    assert config().with_dynamic({rate: "1000"}).follower_replication_throttled_rate == 1000
