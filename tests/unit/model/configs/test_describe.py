"""DescribeConfigs tells where a value comes from, in Kafka's order of strength, and never a secret."""

from __future__ import annotations

from ottla.model.configs.definition import ConfigSource, ConfigType
from ottla.model.configs.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_default,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from ottla.model.configs.resolve import BrokerConfig

BROKER = BrokerConfig.from_properties({"log.segment.bytes": "3000000", "log.retention.hours": "100"})


def only(entries: list[ConfigEntry]) -> ConfigEntry:
    assert len(entries) == 1
    return entries[0]


def synonyms(entry: ConfigEntry) -> list[tuple[str, str | None, ConfigSource]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]


def test_a_topic_config_shows_every_source_the_strongest_first() -> None:
    broker = BROKER.with_dynamic({"log.segment.bytes": "5000000"}, {"log.segment.bytes": "4000000"})
    entry = only(describe_topic({"segment.bytes": " 6000000 "}, broker, ["segment.bytes"]))
    assert (entry.value, entry.source, entry.is_default) == ("6000000", ConfigSource.DYNAMIC_TOPIC, False)
    assert synonyms(entry) == [
        ("segment.bytes", "6000000", ConfigSource.DYNAMIC_TOPIC),
        ("log.segment.bytes", "5000000", ConfigSource.DYNAMIC_BROKER),
        ("log.segment.bytes", "4000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.segment.bytes", "3000000", ConfigSource.STATIC_BROKER),
        ("log.segment.bytes", "1073741824", ConfigSource.DEFAULT),
    ]


def test_a_topic_without_configs_shows_what_the_broker_gives() -> None:
    entry = only(describe_topic({}, BROKER, ["segment.bytes"]))
    assert (entry.value, entry.source) == ("3000000", ConfigSource.STATIC_BROKER)
    entry = only(describe_topic({}, BROKER, ["cleanup.policy"]))
    assert (entry.value, entry.source, entry.type) == ("delete", ConfigSource.DEFAULT, ConfigType.LIST)


def test_a_value_in_a_weaker_unit_is_shown_as_kafka_shows_it() -> None:
    entry = only(describe_topic({}, BROKER, ["retention.ms"]))
    assert (entry.value, entry.source, entry.synonyms) == ("360000000", ConfigSource.DEFAULT, ())


def test_what_a_dynamic_value_hides_is_shown_in_its_own_unit() -> None:
    broker = BROKER.with_dynamic({}, {"log.retention.ms": "2000000", "log.roll.ms": "3000000"})
    below = [
        ("log.retention.ms", "2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.retention.hours", "100", ConfigSource.STATIC_BROKER),
        ("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]
    assert synonyms(only(describe_broker(broker, ["log.retention.ms"]))) == below
    assert synonyms(only(describe_topic({}, broker, ["retention.ms"]))) == below
    assert synonyms(only(describe_topic({}, broker, ["segment.ms"]))) == [
        ("log.roll.ms", "3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("log.roll.hours", "168", ConfigSource.DEFAULT),
    ]
    assert synonyms(only(describe_broker(broker, ["log.roll.jitter.ms"]))) == []


def test_all_keys_are_shown_when_none_is_named() -> None:
    assert len(describe_topic({}, BROKER)) == len(describe_topic({}, BROKER, [])) == 34
    assert len(describe_broker(BROKER)) == 342
    assert len(describe_group({}, BROKER)) == 17
    assert "internal.segment.bytes" not in {entry.name for entry in describe_topic({}, BROKER)}


def test_a_read_only_broker_config_says_so() -> None:
    by_name = {entry.name: entry for entry in describe_broker(BROKER)}
    assert by_name["log.retention.hours"].read_only
    assert not by_name["log.retention.ms"].read_only
    assert by_name["log.retention.ms"].value is None


def test_secrets_and_unknown_values_are_not_shown() -> None:
    broker = BrokerConfig.from_properties({"ssl.key.password": "hunter2"}).with_dynamic({"plugin.token": "hunter2"})
    entries = describe_broker(broker)
    assert "hunter2" not in repr(entries)
    unknown = next(entry for entry in entries if entry.name == "plugin.token")
    assert (unknown.sensitive, unknown.type, unknown.value) == (True, ConfigType.UNKNOWN, None)


def test_a_listeners_own_value_stands_above_the_shared_one() -> None:
    broker = BROKER.with_dynamic({"listener.name.plaintext.max.connections": "5"})
    entry = only(describe_broker(broker, ["listener.name.plaintext.max.connections"]))
    assert entry.value == "5"
    assert synonyms(entry)[-1] == ("max.connections", "2147483647", ConfigSource.DEFAULT)


def test_the_cluster_default_shows_only_what_is_set() -> None:
    entry = only(describe_broker_default({"max.connections": "5"}))
    assert (entry.name, entry.value, entry.source) == ("max.connections", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_groups_and_subscriptions_show_their_own_values() -> None:
    entry = only(describe_group({"consumer.session.timeout.ms": "50000"}, BROKER, ["consumer.session.timeout.ms"]))
    assert (entry.value, entry.source) == ("50000", ConfigSource.DYNAMIC_GROUP)
    assert synonyms(entry)[1] == ("group.consumer.session.timeout.ms", "45000", ConfigSource.DEFAULT)
    entry = only(describe_client_metrics({"interval.ms": "500"}, ["interval.ms"]))
    assert (entry.value, entry.source) == ("500", ConfigSource.DYNAMIC_CLIENT_METRICS)
