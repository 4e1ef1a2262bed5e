"""What a user wrote into a file or set on a topic is what the broker works with."""

from __future__ import annotations

import dataclasses

import pytest

from ottla.model.configs.resolve import BrokerConfig, TopicConfig, resolve_topic
from ottla.model.errors import ConfigError

BROKER = BrokerConfig.from_properties()


def test_a_broker_without_config_listens_at_home_and_gives_topics_kafkas_defaults() -> None:
    assert (BROKER.node_id, BROKER.process_roles) == (1, ("broker", "controller"))
    assert [str(endpoint) for endpoint in BROKER.listeners] == ["PLAINTEXT://127.0.0.1:9092"]
    assert BROKER.advertised_listeners == BROKER.listeners
    assert BROKER.topic_defaults == TopicConfig()
    assert BROKER.get("log.segment.bytes") == 1 << 30


def test_broker_keys_become_the_defaults_of_topics() -> None:
    broker = BrokerConfig.from_properties(
        {
            "log.retention.hours": "2",
            "log.roll.hours": "3",
            "log.cleanup.policy": "compact",
            "log.message.timestamp.type": "LogAppendTime",
            "log.flush.scheduler.interval.ms": "250",
            "message.max.bytes": "2000",
            "ottla.record.validation": "full",
        }
    )
    defaults = broker.topic_defaults
    assert (defaults.retention_ms, defaults.segment_ms, defaults.flush_ms) == (7_200_000, 10_800_000, 250)
    assert (defaults.cleanup_compact, defaults.cleanup_delete) == (True, False)
    assert (defaults.timestamp_type_log_append, defaults.max_message_bytes) == (True, 2000)
    assert defaults.record_validation_full


@pytest.mark.parametrize(
    ("properties", "retention_ms"),
    [
        ({}, 168 * 3_600_000),
        ({"log.retention.hours": "1"}, 3_600_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        ({"log.retention.minutes": "2", "log.retention.ms": "3"}, 3),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_wins(properties: dict[str, str], retention_ms: int) -> None:
    assert BrokerConfig.from_properties(properties).topic_defaults.retention_ms == retention_ms


def test_a_topics_own_configs_win_over_the_brokers() -> None:
    resolved = resolve_topic({"retention.ms": "7", "cleanup.policy": "compact,delete"}, BROKER)
    assert resolved == dataclasses.replace(TopicConfig(), retention_ms=7, cleanup_compact=True)
    assert resolve_topic({"segment.bytes": "2000000", "internal.segment.bytes": "99"}, BROKER).segment_bytes == 99
    assert resolve_topic({}, BROKER) is BROKER.topic_defaults


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"log.retention.mss": "1"}, "Unknown configuration 'log.retention.mss', did you mean log.retention.ms?"),
        ({"zookeeper.connect": "x"}, "Unknown configuration 'zookeeper.connect'"),
        ({"num.partitions": "many"}, "Invalid value many for configuration num.partitions: Not a number of type INT"),
        ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ({"log.retention.ms": "0"}, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        ({"listeners": "localhost:9092"}, "listeners: unable to parse 'localhost:9092', expected NAME://host:port"),
        ({"listeners": "X://h:1"}, "listeners: no security protocol defined for listener X"),
        ({"listeners": "PLAINTEXT://h:70000"}, "listeners: unable to parse 'PLAINTEXT://h:70000'"),
        ({"listeners": "PLAINTEXT://h:-1"}, "listeners: unable to parse 'PLAINTEXT://h:-1'"),
        ({"listeners": "PLAINTEXT://a:1,SSL://a:1"}, "listeners: each listener must have a different port"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "listeners: each listener must have a different name"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "advertised.listeners cannot use the nonroutable meta-address"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "as in advertised.listeners=PLAINTEXT://HOST:9092"),
        ({"advertised.listeners": "SSL://h:1"}, "advertised.listeners: SSL is not one of listeners"),
        ({"listener.security.protocol.map": "A:B"}, "listener.security.protocol.map: 'A:B' is not a pair"),
        ({"node.id": "1", "broker.id": "2"}, "You must set `node.id` to the same value as `broker.id`."),
        ({"process.roles": "king"}, "for configuration process.roles: String must be one of: broker, controller"),
        ({"process.roles": ""}, "for configuration process.roles: Configuration must not be empty"),
        ({"log.dirs": "", "log.dir": ""}, "At least one log directory must be defined"),
        ({"queued.max.request.bytes": "5"}, "queued.max.request.bytes must be larger or equal to"),
        ({"leader.replication.throttled.rate": "5"}, "can be set while the broker runs, not at its start"),
        (
            {"max.connections.per.ip.overrides": "a"},
            "max.connections.per.ip.overrides: 'a' is not a pair address:count",
        ),
        ({"listener.name.plaintext.nonsense": "1"}, "Unknown configuration 'listener.name.plaintext.nonsense'"),
    ],
)
def test_a_mistake_at_start_is_named(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.from_properties(properties)
    assert words in str(refused.value)


def test_keys_of_one_listener_and_of_plugins_may_be_set() -> None:
    broker = BrokerConfig.from_properties(
        {
            "listener.name.plaintext.max.connections": "7",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": "x",
            "rsm.config.bucket": "b",
        }
    )
    assert broker.get("listener.name.plaintext.max.connections") == 7


def test_a_controller_listener_is_not_told_to_clients() -> None:
    broker = BrokerConfig.from_properties({"listeners": "PLAINTEXT://h:1,CONTROLLER://h:2"})
    assert [endpoint.listener for endpoint in broker.listeners] == ["PLAINTEXT", "CONTROLLER"]
    assert [endpoint.listener for endpoint in broker.advertised_listeners] == ["PLAINTEXT"]


def test_ipv6_addresses_keep_their_brackets() -> None:
    broker = BrokerConfig.from_properties({"listeners": "PLAINTEXT://[::1]:9092"})
    assert (broker.listeners[0].host, str(broker.listeners[0])) == ("::1", "PLAINTEXT://[::1]:9092")


def test_dynamic_configs_lie_over_static_ones_and_the_brokers_own_over_the_clusters() -> None:
    broker = BrokerConfig.from_properties({"max.connections": "10", "message.max.bytes": "50"})
    changed = broker.with_dynamic({"max.connections": "30"}, {"max.connections": "20", "message.max.bytes": "60"})
    assert (changed.max_connections, changed.message_max_bytes) == (30, 60)
    assert changed.topic_defaults.max_message_bytes == 60
    assert changed.with_dynamic({}).max_connections == 10


def test_a_stored_value_that_makes_no_sense_does_not_stop_the_broker() -> None:
    changed = BROKER.with_dynamic(
        {"max.connections": "x", "node.id": "9", "unheard.of": "1"}, {"listeners": "PLAINTEXT://h:5"}
    )
    assert (changed.max_connections, changed.node_id) == (2**31 - 1, 1)
    assert changed.listeners == BROKER.listeners


def test_ports_chosen_by_the_system_replace_those_of_the_config() -> None:
    broker = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0"})
    assert broker.with_static({"listeners": "PLAINTEXT://127.0.0.1:4711"}).advertised_listeners[0].port == 4711
