"""A config change that Kafka refuses is refused with the same code and words."""

from __future__ import annotations

import pytest

from ottla.model.configs.alter import (
    check_broker_configs,
    check_client_metrics_configs,
    check_group_configs,
    check_topic_configs,
)
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode

BROKER = BrokerConfig.from_properties()


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"nope": "x"}, "Unknown topic config name: nope"),
        ({"message.format.version": "3.0"}, "Unknown topic config name: message.format.version"),
        (
            {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log "
            "storage.",
        ),
    ],
)
def test_topics(configs: dict[str, str], words: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_topic_configs(configs, BROKER)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_CONFIG, words)


@pytest.mark.parametrize(
    ("configs", "per_broker", "words"),
    [
        ({"log.retention.hours": "5"}, True, "Cannot update these configs dynamically: [log.retention.hours]"),
        ({"node.id": "5"}, False, "Cannot update these configs dynamically: [node.id]"),
        ({"num.io.threads": "x"}, True, "Invalid value x for configuration num.io.threads: Not a number of type INT"),
        ({"log.retention.ms": "0"}, True, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1"),
        (
            {"cordoned.log.dirs": "/x"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]",
        ),
        (
            {"ssl.keystore.location": "/x"},
            True,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            "[ssl.keystore.location]",
        ),
        (
            {"leader.replication.throttled.rate": "-5"},
            True,
            "Invalid value -5 for configuration leader.replication.throttled.rate: Value must be at least 0",
        ),
    ],
)
def test_brokers(configs: dict[str, str], per_broker: bool, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_broker_configs(configs, BROKER, per_broker=per_broker)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, words)


@pytest.mark.parametrize("key", ["listeners", "listener.security.protocol.map"])
def test_listeners_that_would_not_be_opened_are_refused(key: str) -> None:
    """A broker opens its listeners when it starts, and never again: an answer of success would be a lie."""
    with pytest.raises(ApiError, match="Cannot update these configs dynamically") as refused:
        check_broker_configs({key: "PLAINTEXT://h:1"}, BROKER, per_broker=True)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_what_kafka_lets_pass_on_a_broker_passes() -> None:
    for per_broker in (True, False):
        check_broker_configs(
            {"max.connections": "5", "unknown.to.kafka": "1", "listener.name.plaintext.max.connections": "5"},
            BROKER,
            per_broker=per_broker,
        )


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ({"nope": "x"}, "Unknown group config name: nope"),
        (
            {"consumer.session.timeout.ms": "1"},
            "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms",
        ),
        (
            {"consumer.heartbeat.interval.ms": "46000"},
            "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"streams.num.standby.replicas": "3"},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            {"share.isolation.level": "x"},
            "Invalid value x for configuration share.isolation.level: String must be one of: read_committed, "
            "read_uncommitted",
        ),
        (
            {"consumer.session.timeout.ms": "x"},
            "Invalid value x for configuration consumer.session.timeout.ms: Not a number of type INT",
        ),
    ],
)
def test_groups(configs: dict[str, str], words: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_group_configs(configs, BROKER)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_CONFIG, words)


def test_good_group_configs_pass() -> None:
    check_group_configs({"consumer.session.timeout.ms": "50000", "share.auto.offset.reset": "by_duration:PT1H"}, BROKER)


@pytest.mark.parametrize(
    ("configs", "code", "words"),
    [
        ({"nope": "x"}, ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: nope"),
        (
            {"interval.ms": "1"},
            ErrorCode.INVALID_REQUEST,
            "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ({"match": "foo=a"}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: foo=a"),
        ({"match": "client_id=["}, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id=["),
    ],
)
def test_client_metrics(configs: dict[str, str], code: ErrorCode, words: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_client_metrics_configs("m", configs)
    assert (refused.value.code, refused.value.message) == (code, words)
