"""Creating, growing and deleting topics answers as Kafka does, code by code."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.core.controller.commands import (
    CreatePartitions,
    CreateTopics,
    DeletedTopic,
    DeleteTopics,
    MorePartitions,
    NewTopic,
    Outcome,
    TopicReference,
)
from ottla.core.controller.controller import Controller
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ErrorCode
from tests.unit.core.controller.cluster import Cluster

A, B = UUID(int=0xA), UUID(int=0xB)


def created(cluster: Cluster, topic: NewTopic, *, validate_only: bool = False) -> Outcome:
    [answer] = cluster.create(topic, validate_only=validate_only)
    return answer.outcome


def test_a_topic_gets_an_id_partitions_and_configs() -> None:
    cluster = Cluster(config={"num.partitions": "3"})
    [answer] = cluster.create(NewTopic("t", configs=[("retention.ms", "5")]))
    assert (answer.outcome.code, answer.num_partitions, answer.replication_factor) == (ErrorCode.NONE, 3, 1)
    topic = cluster.image.topics["t"]
    assert topic.id == answer.topic_id
    assert [partition.leader for partition in topic.partitions] == [1, 1, 1]
    assert all(partition.isr == partition.replicas == (1,) for partition in topic.partitions)
    assert all(partition.directories == (UUID(int=1001),) for partition in topic.partitions)
    assert cluster.image.topic_configs("t") == {"retention.ms": "5"}
    assert cluster.image.topics_by_id[topic.id] is topic


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "Topic name is invalid: the empty string is not allowed"),
        (".", "Topic name is invalid: '.' is not allowed"),
        ("..", "Topic name is invalid: '..' is not allowed"),
        (
            "a b",
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'",
        ),
        (
            "ä",
            "Topic name is invalid: 'ä' contains one or more characters other than ASCII alphanumerics, '.', "
            "'_' and '-'",
        ),
        ("a\n", None),
        ("x" * 250, f"Topic name is invalid: the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_a_bad_name_is_refused(name: str, words: str | None) -> None:
    outcome = created(Cluster(), NewTopic(name))
    assert outcome.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert words is None or outcome.message == words


def test_an_id_is_never_taken_reserved_or_mistaken_for_an_option() -> None:
    cluster = Cluster()
    [first] = cluster.create(NewTopic("a"))
    assert first.topic_id is not None
    drawn = iter([UUID(int=0), UUID(int=1), UUID(int=62 << 122), first.topic_id, UUID(int=7 << 100)])
    controller = Controller(cluster.image, BrokerConfig.from_properties(), lambda: next(drawn))
    [second] = controller.decide(CreateTopics([NewTopic("b")]), len(cluster.log)).answer
    assert second.topic_id == UUID(int=7 << 100)


def test_the_longest_name_is_taken() -> None:
    assert created(Cluster(), NewTopic("x" * 249)).code is ErrorCode.NONE


def test_the_metadata_log_is_not_for_clients() -> None:
    outcome = created(Cluster(), NewTopic("__cluster_metadata"))
    assert outcome == (ErrorCode.INVALID_REQUEST, "Creation of internal topic __cluster_metadata is prohibited.")


def test_an_existing_topic_and_one_that_looks_like_it_are_refused() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("a.b"))
    assert created(cluster, NewTopic("a.b")) == (ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 'a.b' already exists.")
    words = "Topic 'a_b' collides with existing topic: a.b"
    assert created(cluster, NewTopic("a_b")) == (ErrorCode.INVALID_TOPIC_EXCEPTION, words)
    cluster.submit(DeleteTopics([TopicReference("a.b")]))
    assert created(cluster, NewTopic("a_b")).code is ErrorCode.NONE


def test_names_that_collide_within_one_request_are_refused() -> None:
    first, second = Cluster().create(NewTopic("e.1"), NewTopic("e_1"))
    assert (first.outcome.code, second.outcome.code) == (ErrorCode.NONE, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_name_twice_in_one_request_is_refused_once() -> None:
    answers = Cluster().create(NewTopic("d"), NewTopic("d"), NewTopic("e"))
    assert [(answer.name, answer.outcome.message) for answer in answers] == [
        ("d", "Duplicate topic name."),
        ("e", None),
    ]
    assert answers[0].outcome.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("partitions", "factor", "code", "words"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (-2, 1, ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."),
        (
            1,
            0,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        ),
        (
            1,
            2,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
            "only 1 broker(s) are registered or some brokers have all their log directories cordoned.",
        ),
        (10_001, 1, ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."),
    ],
)
def test_impossible_sizes_are_refused(partitions: int, factor: int, code: ErrorCode, words: str) -> None:
    assert created(Cluster(), NewTopic("t", partitions, factor)) == (code, words)


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (
            NewTopic("t", assignments=[(1, [1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (0, [2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Found multiple manual partition assignments for partition 0",
        ),
        (
            NewTopic("t", assignments=[(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            NewTopic("t", assignments=[(0, [1, 1])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes the broker 1 more than once.",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (1, [])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes an empty replica list.",
        ),
        (
            NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with "
            "previous partitions, which have 1 replica(s).",
        ),
        (
            NewTopic("t", num_partitions=1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        ),
        (
            NewTopic("t", replication_factor=1, assignments=[(0, [1])]),
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        ),
    ],
)
def test_a_bad_assignment_is_refused(topic: NewTopic, code: ErrorCode, words: str) -> None:
    assert created(Cluster(brokers=2), topic) == (code, words)


def test_a_good_assignment_is_followed() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(NewTopic("t", assignments=[(1, [3, 2]), (0, [2, 1])]))
    assert [partition.replicas for partition in cluster.image.topics["t"].partitions] == [(2, 1), (3, 2)]


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ([("nope", "x")], "Unknown topic config name: nope"),
        ([("retention.ms", None)], "Null value not supported for topic configs: retention.ms"),
        (
            [("retention.ms", "abc")],
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
    ],
)
def test_a_bad_config_is_refused_before_anything_is_written(configs: list[tuple[str, str | None]], words: str) -> None:
    cluster = Cluster()
    before = len(cluster.log)
    assert created(cluster, NewTopic("t", configs=configs)) == (ErrorCode.INVALID_CONFIG, words)
    assert len(cluster.log) == before


def test_validating_changes_nothing() -> None:
    cluster = Cluster()
    before = len(cluster.log)
    assert created(cluster, NewTopic("t", 3), validate_only=True).code is ErrorCode.NONE
    assert (len(cluster.log), dict(cluster.image.topics)) == (before, {})


def grown(cluster: Cluster, more: MorePartitions) -> Outcome:
    [answer] = cluster.submit(CreatePartitions([more]))
    return answer.outcome


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (MorePartitions("t", 1), ErrorCode.INVALID_PARTITIONS, "Topic already has 1 partition(s)."),
        (
            MorePartitions("t", 0),
            ErrorCode.INVALID_PARTITIONS,
            "The topic t currently has 1 partition(s); 0 would not be an increase.",
        ),
        (
            MorePartitions("nope", 2),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (
            MorePartitions("t", 3, [[1]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (
            MorePartitions("t", 2, [[9]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (
            MorePartitions("t", 20_000),
            ErrorCode.POLICY_VIOLATION,
            "Excessively large number of partitions per request.",
        ),
    ],
)
def test_growth_that_is_none_is_refused(more: MorePartitions, code: ErrorCode, words: str) -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t", 1))
    assert grown(cluster, more) == (code, words)


def test_a_topic_grows_and_keeps_what_it_has() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(NewTopic("t", 2, 2))
    before = cluster.image.topics["t"].partitions
    assert grown(cluster, MorePartitions("t", 5)).code is ErrorCode.NONE
    assert cluster.image.topics["t"].partitions[:2] == before
    assert all(len(partition.replicas) == 2 for partition in cluster.image.topics["t"].partitions)
    answers = cluster.submit(CreatePartitions([MorePartitions("t", 6), MorePartitions("t", 7)]))
    assert [(answer.name, answer.outcome.code) for answer in answers] == [("t", ErrorCode.INVALID_REQUEST)]


def deleted(cluster: Cluster, *topics: TopicReference) -> list[DeletedTopic]:
    return cluster.submit(DeleteTopics(topics))


def test_a_deleted_topic_is_gone_with_its_configs() -> None:
    cluster = Cluster()
    [first, second] = cluster.create(NewTopic("a", configs=[("retention.ms", "5")]), NewTopic("b"))
    answers = deleted(cluster, TopicReference("a"), TopicReference(topic_id=second.topic_id))
    assert [(answer.name, answer.topic_id, answer.outcome.code) for answer in answers] == [
        ("a", first.topic_id, ErrorCode.NONE),
        ("b", second.topic_id, ErrorCode.NONE),
    ]
    assert (dict(cluster.image.topics), dict(cluster.image.topics_by_id)) == ({}, {})
    assert cluster.image.configs_of(ResourceType.TOPIC, "a") == {}
    [again] = cluster.create(NewTopic("a"))
    assert again.topic_id != first.topic_id


@pytest.mark.parametrize(
    ("reference", "code", "words"),
    [
        (
            TopicReference("nope"),
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "This server does not host this topic-partition.",
        ),
        (TopicReference(topic_id=A), ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."),
        (TopicReference("t", A), ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."),
        (TopicReference(), ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified."),
    ],
)
def test_a_topic_that_is_not_there_cannot_be_deleted(reference: TopicReference, code: ErrorCode, words: str) -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t"))
    [answer] = deleted(cluster, reference)
    assert answer.outcome == (code, words)


def test_a_topic_named_twice_is_not_deleted() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("t"))
    [answer] = deleted(cluster, TopicReference("t"), TopicReference("t"))
    assert answer.outcome == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    [answer] = deleted(cluster, TopicReference(topic_id=B), TopicReference(topic_id=B))
    assert answer.outcome == (ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
    assert "t" in cluster.image.topics


@pytest.mark.parametrize("name_first", [True, False])
def test_a_topic_named_by_name_and_by_id_is_not_deleted(name_first: bool) -> None:
    cluster = Cluster()
    [_, created] = cluster.create(NewTopic("other"), NewTopic("t"))
    both = [TopicReference("t"), TopicReference(topic_id=created.topic_id)]
    answers = deleted(cluster, *(both if name_first else reversed(both)), TopicReference("other"))
    assert (answers[0].name, answers[0].topic_id, answers[0].outcome.code) == (
        "t",
        created.topic_id,
        ErrorCode.INVALID_REQUEST,
    )
    assert (len(answers), list(cluster.image.topics)) == (2, ["t"])


def test_deletion_can_be_forbidden() -> None:
    cluster = Cluster(config={"delete.topic.enable": "false"})
    cluster.create(NewTopic("t"))
    [answer] = deleted(cluster, TopicReference("t"))
    assert answer.outcome == (ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
