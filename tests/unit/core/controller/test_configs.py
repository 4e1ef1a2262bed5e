"""Config changes happen as a whole per resource, or are refused with Kafka's codes."""

from __future__ import annotations

import pytest

from ottla.core.controller.builder import apply
from ottla.core.controller.commands import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    FeatureUpdate,
    IncrementalAlterConfigs,
    NewTopic,
    Outcome,
    ResourceChange,
    ResourceConfigs,
    UpdateFeatures,
)
from ottla.core.controller.feature_levels import ELR_VERSION
from ottla.core.controller.records import ConfigRecord
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ErrorCode
from tests.unit.core.controller.cluster import Cluster

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE = ConfigOperation.SET, ConfigOperation.DELETE
APPEND, SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.create(NewTopic("t"))
    return cluster


def change(
    cluster: Cluster, kind: int, name: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> Outcome:
    asked = ResourceChange(kind, name, [ConfigChange(*each) for each in changes])
    [answer] = cluster.submit(IncrementalAlterConfigs([asked], validate_only))
    assert answer[:2] == (kind, name)
    return answer.outcome


def replace(cluster: Cluster, kind: int, name: str, *configs: tuple[str, str | None]) -> Outcome:
    [answer] = cluster.submit(AlterConfigs([ResourceConfigs(kind, name, configs)]))
    return answer.outcome


def test_keys_are_set_and_deleted_one_by_one(cluster: Cluster) -> None:
    change(cluster, TOPIC, "t", ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
    change(cluster, TOPIC, "t", ("retention.ms", DELETE, None), ("never.set", DELETE, None))
    assert cluster.image.topic_configs("t") == {"segment.ms": "6"}
    change(cluster, TOPIC, "t", ("segment.ms", DELETE, None))
    assert (TOPIC, "t") not in cluster.image.configs


def test_lists_grow_and_shrink_from_their_default(cluster: Cluster) -> None:
    for operation, value, expected in [
        (APPEND, "compact", "delete,compact"),
        (APPEND, "compact,compact", "delete,compact"),
        (SUBTRACT, "delete", "compact"),
        (SUBTRACT, "compact", ""),
    ]:
        assert change(cluster, TOPIC, "t", ("cleanup.policy", operation, value)).code is ErrorCode.NONE
        assert cluster.image.topic_configs("t")["cleanup.policy"] == expected


@pytest.mark.parametrize(
    ("operation", "value", "code"),
    [
        (APPEND, "", ErrorCode.INVALID_CONFIG),
        (APPEND, " ", ErrorCode.INVALID_CONFIG),
        (APPEND, "compact,,delete", ErrorCode.INVALID_CONFIG),
        (APPEND, ",", ErrorCode.NONE),
        (APPEND, "compact,", ErrorCode.NONE),
        (SUBTRACT, "", ErrorCode.NONE),
    ],
)
def test_an_empty_entry_is_not_added_in_silence(
    cluster: Cluster, operation: ConfigOperation, value: str, code: ErrorCode
) -> None:
    before = dict(cluster.image.topic_configs("t"))
    assert change(cluster, TOPIC, "t", ("cleanup.policy", operation, value)).code is code
    if code is not ErrorCode.NONE:
        assert cluster.image.topic_configs("t") == before
    assert change(cluster, TOPIC, "t", ("leader.replication.throttled.replicas", APPEND, "")).code is ErrorCode.NONE


def test_a_whole_set_replaces_what_was_there(cluster: Cluster) -> None:
    replace(cluster, TOPIC, "t", ("retention.ms", "5"), ("segment.ms", "6"))
    replace(cluster, TOPIC, "t", ("retention.ms", "7"))
    assert cluster.image.topic_configs("t") == {"retention.ms": "7"}
    before = len(cluster.log)
    replace(cluster, TOPIC, "t", ("retention.ms", "7"))
    assert len(cluster.log) == before


@pytest.mark.parametrize(
    ("kind", "name", "changes", "code", "words"),
    [
        (
            TOPIC,
            "nope",
            [("retention.ms", SET, "1")],
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "The topic 'nope' does not exist.",
        ),
        (
            TOPIC,
            "",
            [("retention.ms", SET, "1")],
            ErrorCode.INVALID_REQUEST,
            "Default topic resources are not allowed.",
        ),
        (TOPIC, "a b", [], ErrorCode.INVALID_TOPIC_EXCEPTION, None),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : retention.ms",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            TOPIC,
            "t",
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        (TOPIC, "t", [("retention.ms", 7, "1")], ErrorCode.INVALID_REQUEST, None),
        (TOPIC, "t", [("nope", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (BROKER, "x", [], ErrorCode.INVALID_REQUEST, "Node id must be an integer, but it is: x"),
        (BROKER, "2", [], ErrorCode.INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        (
            BROKER,
            "1",
            [("log.retention.hours", SET, "5")],
            ErrorCode.INVALID_REQUEST,
            "Cannot update these configs dynamically: [log.retention.hours]",
        ),
        (ResourceType.GROUP, "", [], ErrorCode.INVALID_REQUEST, "Default group resources are not allowed."),
        (ResourceType.CLIENT_METRICS, "", [], ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"),
        (8, "1", [], ErrorCode.INVALID_REQUEST, "Unknown resource type 8"),
        (99, "1", [], ErrorCode.INVALID_REQUEST, "Unknown resource type 99"),
    ],
)
def test_what_kafka_refuses_is_refused(
    cluster: Cluster,
    kind: int,
    name: str,
    changes: list[tuple[str, int, str | None]],
    code: ErrorCode,
    words: str | None,
) -> None:
    before = len(cluster.log)
    outcome = change(cluster, kind, name, *changes)
    assert outcome.code is code
    assert words is None or outcome.message == words
    assert len(cluster.log) == before


def test_a_resource_named_twice_is_refused_both_times(cluster: Cluster) -> None:
    asked = ResourceChange(TOPIC, "t", [ConfigChange("retention.ms", SET, "5")])
    answers = cluster.submit(IncrementalAlterConfigs([asked, asked]))
    words = "Each resource must appear at most once."
    assert [answer.outcome for answer in answers] == [(ErrorCode.INVALID_REQUEST, words)] * 2


def test_validating_changes_nothing(cluster: Cluster) -> None:
    before = len(cluster.log)
    assert change(cluster, TOPIC, "t", ("retention.ms", SET, "5"), validate_only=True).code is ErrorCode.NONE
    assert len(cluster.log) == before


def test_a_dynamic_broker_config_holds_for_the_next_command(cluster: Cluster) -> None:
    change(cluster, BROKER, "", ("log.cleaner.max.compaction.lag.ms", SET, "5"))
    outcome = change(cluster, TOPIC, "t", ("min.compaction.lag.ms", SET, "10"))
    assert outcome.code is ErrorCode.INVALID_CONFIG


def test_no_broker_has_a_minimum_in_sync_of_its_own_while_there_is_an_elr(cluster: Cluster) -> None:
    key = "min.insync.replicas"
    refused = Outcome(
        ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    )
    assert change(cluster, BROKER, "1", (key, SET, "2")) == refused
    assert replace(cluster, BROKER, "1", (key, "2")) == refused
    assert change(cluster, BROKER, "", (key, SET, "2")).code is ErrorCode.NONE

    # What a version has left that did not refuse it may go, and is in nobody's way.
    left = ConfigRecord(resource_type=BROKER, resource_name="1", name=key, value="2")
    cluster.log.append(left)
    cluster.controller.image, _ = apply(cluster.image, [left], offset=len(cluster.log) - 1, epoch=0)
    assert change(cluster, BROKER, "1", ("log.cleaner.backoff.ms", SET, "5")).code is ErrorCode.NONE
    assert change(cluster, BROKER, "1", (key, SET, "3")) == refused
    assert change(cluster, BROKER, "1", (key, DELETE, None)).code is ErrorCode.NONE


def test_the_clusters_minimum_in_sync_is_not_removed_while_there_is_an_elr(cluster: Cluster) -> None:
    key = "min.insync.replicas"
    refused = Outcome(
        ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    )
    assert change(cluster, BROKER, "", (key, DELETE, None)).code is ErrorCode.NONE
    assert change(cluster, BROKER, "", (key, SET, "2")).code is ErrorCode.NONE
    assert change(cluster, BROKER, "", (key, DELETE, None)) == refused
    assert replace(cluster, BROKER, "", ("log.cleaner.backoff.ms", "5")) == refused
    assert change(cluster, BROKER, "", (key, SET, "1")).code is ErrorCode.NONE
    assert cluster.image.configs_of(BROKER, "") == {key: "1"}

    cluster.submit(UpdateFeatures([FeatureUpdate(ELR_VERSION, 0, 2)], validate_only=False))
    assert change(cluster, BROKER, "", (key, DELETE, None)).code is ErrorCode.NONE


def test_minimums_of_single_brokers_go_when_the_elr_comes(cluster: Cluster) -> None:
    cluster.submit(UpdateFeatures([FeatureUpdate(ELR_VERSION, 0, 2)], validate_only=False))
    wanted = (("min.insync.replicas", SET, "2"), ("log.cleaner.backoff.ms", SET, "5"))
    assert change(cluster, BROKER, "1", *wanted).code is ErrorCode.NONE
    cluster.submit(UpdateFeatures([FeatureUpdate(ELR_VERSION, 1, 1)], validate_only=False))
    assert cluster.image.configs_of(BROKER, "1") == {"log.cleaner.backoff.ms": "5"}
    assert cluster.replayed() == cluster.image


def test_groups_and_subscriptions_take_configs(cluster: Cluster) -> None:
    assert (
        change(cluster, ResourceType.GROUP, "g", ("consumer.session.timeout.ms", SET, "50000")).code is ErrorCode.NONE
    )
    assert change(cluster, ResourceType.CLIENT_METRICS, "m", ("interval.ms", SET, "5000")).code is ErrorCode.NONE
    assert cluster.image.configs_of(ResourceType.CLIENT_METRICS, "m") == {"interval.ms": "5000"}
