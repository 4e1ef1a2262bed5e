"""A value that Kafka takes is taken, and what it refuses is refused in its words, naming the key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ottla
from ottla.model.configs.broker import BROKER_CONFIGS
from ottla.model.configs.definition import ConfigType, Update, render
from ottla.model.configs.group import CLIENT_METRICS_CONFIGS, GROUP_BOUNDS, GROUP_CONFIGS
from ottla.model.configs.topic import TOPIC_CONFIGS
from ottla.model.errors import ConfigError

ATTRIBUTES = {
    "cleanup.policy": "cleanup_compact",
    "message.timestamp.type": "timestamp_type_log_append",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
}

REFUSED = [
    ("retention.ms", "abc", "Invalid value abc for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "", "Invalid value  for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "-5", "Invalid value -5 for configuration retention.ms: Value must be at least -1"),
    ("retention.ms", "1_000", "Invalid value 1_000 for configuration retention.ms: Not a number of type LONG"),
    ("retention.ms", "٣", "Invalid value ٣ for configuration retention.ms: Not a number of type LONG"),
    (
        "retention.ms",
        "9223372036854775808",
        "Invalid value 9223372036854775808 for configuration retention.ms: Not a number of type LONG",
    ),
    ("segment.bytes", "1", "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
    ("segment.bytes", "1e6", "Invalid value 1e6 for configuration segment.bytes: Not a number of type INT"),
    (
        "segment.bytes",
        "9999999999",
        "Invalid value 9999999999 for configuration segment.bytes: Not a number of type INT",
    ),
    (
        "preallocate",
        "maybe",
        "Invalid value maybe for configuration preallocate: Expected value to be either true or false",
    ),
    (
        "compression.type",
        "foo",
        "Invalid value foo for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, "
        "gzip, producer",
    ),
    (
        "compression.gzip.level",
        "0",
        "Invalid value 0 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
    ),
    (
        "compression.zstd.level",
        "100",
        "Invalid value 100 for configuration compression.zstd.level: Value must be no more than 22",
    ),
    (
        "min.cleanable.dirty.ratio",
        "2",
        "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
    ),
    (
        "min.cleanable.dirty.ratio",
        "nan",
        "Invalid value nan for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
    ),
    (
        "leader.replication.throttled.replicas",
        "none",
        "Invalid value [none] for configuration leader.replication.throttled.replicas: must be the literal '*' "
        "or a list "
        "of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
    ),
]


@pytest.mark.parametrize(("key", "text", "words"), REFUSED)
def test_a_bad_value_is_refused_in_kafkas_words(key: str, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as refused:
        TOPIC_CONFIGS[key].parse(text)
    assert str(refused.value) == words


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("retention.ms", " 5 ", 5),
        ("retention.ms", "+5", 5),
        ("preallocate", "TRUE", True),
        ("cleanup.policy", "", ()),
        ("cleanup.policy", " compact , delete", ("compact", "delete")),
        ("cleanup.policy", "delete,delete", ("delete",)),
        ("min.cleanable.dirty.ratio", "1e-1", 0.1),
        ("compression.gzip.level", "-1", -1),
        ("leader.replication.throttled.replicas", "*", ("*",)),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
    ],
)
def test_what_kafka_takes_is_taken(key: str, text: str, value: object) -> None:
    assert TOPIC_CONFIGS[key].parse(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (0.0, "0.0"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (12345678.0, "1.2345678E7"),
        (0.0001, "1.0E-4"),
        (True, "true"),
        ((), ""),
        (("a", "b"), "a,b"),
        (None, None),
        (2**63 - 1, "9223372036854775807"),
    ],
)
def test_values_are_spelt_as_java_spells_them(value: object, text: str | None) -> None:
    assert render(value) == text  # type: ignore[arg-type]


def test_a_secret_never_appears_in_an_error() -> None:
    definition = BROKER_CONFIGS["ssl.key.password"]
    assert "hunter2" not in str(definition.refuse("hunter2", "no"))


def test_every_default_passes_its_own_check() -> None:
    for table in (TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS):
        for definition in table.values():
            if definition.default is not None:
                text = render(definition.default)
                assert text is not None
                assert definition.parse(text) == definition.default, definition.name


def test_the_keys_are_kafkas() -> None:
    ours = ("cluster.id", "ottla.record.validation")
    listed = [key for key in BROKER_CONFIGS.values() if not key.internal and key.name not in ours]
    assert len(listed) == 340
    assert len([key for key in TOPIC_CONFIGS.values() if not key.internal]) == 33 + 1
    assert (len(GROUP_CONFIGS), len(CLIENT_METRICS_CONFIGS)) == (17, 3)
    assert sum(key.update is Update.CLUSTER_WIDE for key in listed) == 62
    of_listeners = ("listeners", "listener.security.protocol.map")
    assert sum(key.update is Update.PER_BROKER for key in listed) == 37 - len(of_listeners)
    assert sum(key.type is ConfigType.PASSWORD for key in listed) == 10


def test_every_key_says_what_it_is_for() -> None:
    for table in (TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS, CLIENT_METRICS_CONFIGS):
        for definition in table.values():
            assert definition.doc.endswith("."), definition.name
            assert len(definition.doc) > 10, definition.name


def test_topic_and_group_keys_fall_back_on_broker_keys_that_exist() -> None:
    for table in (TOPIC_CONFIGS, GROUP_CONFIGS):
        for definition in table.values():
            assert set(definition.synonyms) <= BROKER_CONFIGS.keys(), definition.name


def test_a_key_that_is_said_to_work_is_read_somewhere() -> None:
    sources = Path(ottla.__file__).parent
    text = "\n".join(
        path.read_text() for path in sources.rglob("*.py") if "configs" not in path.relative_to(sources).parts
    )
    words = set(re.findall(r"\w+", text))
    of_topics = {synonym for key in TOPIC_CONFIGS.values() if key.effective for synonym in key.synonyms}
    of_groups = {bound for bounds in GROUP_BOUNDS.values() for bound in bounds if bound is not None}
    resolved = {"listeners", "listener.security.protocol.map", "log.dir", "broker.id", "internal.segment.bytes"}
    idle = [
        key.name
        for key in (*BROKER_CONFIGS.values(), *TOPIC_CONFIGS.values())
        if key.effective and key.name not in of_topics | resolved | of_groups
        if ATTRIBUTES.get(key.name, key.name.replace(".", "_")) not in words and f'"{key.name}"' not in text
    ]
    assert idle == []
