"""Decisions about topics: create, delete, grow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from uuid import UUID

from ottla.core.controller.assignments import manual_assignments, partition_records, placement_start
from ottla.core.controller.commands import (
    DEFAULT,
    DONE,
    CreatedTopic,
    CreateTopics,
    Decision,
    DeletedTopic,
    DeleteTopics,
    NewTopic,
    Outcome,
    TopicReference,
)
from ottla.core.controller.context import Context
from ottla.core.controller.image import TopicImage
from ottla.core.controller.placement import place_partitions
from ottla.core.controller.records import (
    ConfigRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.core.controller.validation import (
    PARTITIONS_PER_REQUEST_MAX,
    CollisionIndex,
    check_not_internal,
    check_topic_name,
)
from ottla.model.configs.alter import check_topic_configs
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import ZERO_UUID

_BASE64_DASH: Final = 62
_RESERVED_IDS_MAX: Final = 99
"""Ids up to this one are for topics and directories that have a meaning of their own."""
DUPLICATE_NAME: Final = Outcome(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
TOO_MANY_PARTITIONS: Final = Outcome(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def create_topics(context: Context, command: CreateTopics) -> Decision[list[CreatedTopic]]:
    """Each topic is created or refused for itself."""
    times = Counter(topic.name for topic in command.topics)
    too_many = sum(_partitions_asked(topic, context) for topic in command.topics) > PARTITIONS_PER_REQUEST_MAX
    records: list[Record] = []
    answers: dict[str, CreatedTopic] = {}
    within = CollisionIndex()
    for topic in command.topics:
        if topic.name in answers:
            continue
        if times[topic.name] > 1:
            answers[topic.name] = CreatedTopic(topic.name, DUPLICATE_NAME)
        elif too_many:
            answers[topic.name] = CreatedTopic(topic.name, TOO_MANY_PARTITIONS)
        else:
            answers[topic.name], created = _try_to_create(context, topic, within)
            records += created
    return Decision(() if command.validate_only else tuple(records), list(answers.values()))


def _partitions_asked(topic: NewTopic, context: Context) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return context.config.num_partitions if topic.num_partitions == DEFAULT else max(topic.num_partitions, 0)


def _try_to_create(context: Context, topic: NewTopic, within: CollisionIndex) -> tuple[CreatedTopic, list[Record]]:
    try:
        _check_name(context, topic.name, within)
        configs = _checked_configs(context, topic.configs)
        topic_id = _new_topic_id(context)
        assignments = _assignments(context, topic, topic_id)
    except ApiError as error:
        return CreatedTopic(topic.name, Outcome.of(error)), []
    within.add(topic.name)
    answer = CreatedTopic(topic.name, DONE, topic_id, len(assignments), len(assignments[0]), configs)
    return answer, [
        TopicRecord(name=topic.name, topic_id=topic_id),
        *_config_records(topic.name, configs),
        *partition_records(context, topic_id, 0, assignments),
    ]


def _new_topic_id(context: Context) -> UUID:
    """An id that is neither taken nor reserved, nor begins with a dash, which tools would take for an option."""
    while True:
        topic_id = context.new_uuid()
        begins_with_dash = topic_id.int >> 122 == _BASE64_DASH
        if topic_id.int > _RESERVED_IDS_MAX and not begins_with_dash and topic_id not in context.image.topics_by_id:
            return topic_id


def _check_name(context: Context, name: str, within: CollisionIndex) -> None:
    """`within` holds the names that the same request creates: Kafka forgets them, and makes topics that collide."""
    check_topic_name(name)
    check_not_internal(name)
    if name in context.image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    collision = context.collisions.find(name) or within.find(name)
    if collision is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {collision}")


def _checked_configs(context: Context, given: Sequence[tuple[str, str | None]]) -> dict[str, str]:
    if not given:
        return {}
    configs: dict[str, str] = {}
    for name, value in given:
        if value is None:
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        configs[name] = value
    check_topic_configs(configs, context.config)
    return configs


def _assignments(context: Context, topic: NewTopic, topic_id: UUID) -> list[tuple[int, ...]]:
    if topic.assignments:
        return manual_assignments(context, topic)
    if topic.replication_factor == 0 or topic.replication_factor < DEFAULT:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.num_partitions == 0 or topic.num_partitions < DEFAULT:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    config = context.config
    return place_partitions(
        context.image.brokers.values(),
        first_partition=0,
        count=config.num_partitions if topic.num_partitions == DEFAULT else topic.num_partitions,
        replication_factor=(
            config.default_replication_factor if topic.replication_factor == DEFAULT else topic.replication_factor
        ),
        start=placement_start(topic_id),
    )


def _config_records(topic: str, configs: Mapping[str, str]) -> Iterator[ConfigRecord]:
    for name, value in configs.items():
        yield ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=name, value=value)


_NAMED_BY_ID_TOO: Final = Outcome(
    ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied."
)


def delete_topics(context: Context, command: DeleteTopics) -> Decision[list[DeletedTopic]]:
    """Each topic is deleted or refused for itself. A topic named twice is refused, with one answer."""
    names = Counter(topic.name for topic in command.topics if topic.name is not None)
    ids = Counter(topic.topic_id for topic in command.topics if topic.topic_id is not None)
    answers: dict[TopicReference | UUID, DeletedTopic] = {}
    for reference in dict.fromkeys(command.topics):
        try:
            topic = _to_delete(context, reference, names[reference.name or ""], ids[reference.topic_id or ZERO_UUID])
        except ApiError as error:
            answers[reference] = DeletedTopic(reference.name, reference.topic_id, Outcome.of(error))
            continue
        # One that is asked for by name and by id is there already: whoever wrote that may mean another one.
        answers[topic.id] = DeletedTopic(topic.name, topic.id, _NAMED_BY_ID_TOO if topic.id in answers else DONE)
    deleted = [key for key, answer in answers.items() if isinstance(key, UUID) and answer.outcome is DONE]
    return Decision(tuple(RemoveTopicRecord(topic_id=topic_id) for topic_id in deleted), list(answers.values()))


def _to_delete(context: Context, reference: TopicReference, times_named: int, times_by_id: int) -> TopicImage:
    name, topic_id = reference
    if not context.config.delete_topic_enable:
        raise ApiError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    by_id = topic_id is not None and topic_id != ZERO_UUID
    if name is None and not by_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if name is not None and by_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
    if times_named > 1 or (by_id and times_by_id > 1):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {'id' if by_id else 'name'}.")
    if name is not None:
        return existing_topic(context, name)
    topic = context.image.topics_by_id.get(topic_id) if topic_id is not None else None
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return topic


def existing_topic(context: Context, name: str) -> TopicImage:
    topic = context.image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return topic
