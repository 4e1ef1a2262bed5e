"""The same configs of many topics at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import broker_error
from ottla.model.configs.definition import ConfigSource, ResourceType
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

TOPICS_PER_REQUEST: Final = 500


class TopicValue(NamedTuple):
    """A value that a topic has, and whether it was set on the topic itself."""

    value: str | None
    own: bool


def describe_topics(
    cluster: Cluster, topics: Collection[str], keys: Collection[str]
) -> dict[str, dict[str, TopicValue]]:
    """These configs of these topics, by topic and key. A topic that is not there (any more) is left out."""
    names, found = sorted(topics), dict[str, dict[str, TopicValue]]()
    for start in range(0, len(names), TOPICS_PER_REQUEST):
        found |= _describe(cluster, names[start : start + TOPICS_PER_REQUEST], sorted(keys))
    return found


def _describe(cluster: Cluster, topics: list[str], keys: list[str]) -> dict[str, dict[str, TopicValue]]:
    resources = [
        DescribeConfigsResource(resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=keys)
        for name in topics
    ]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False)

    def attempt() -> dict[str, dict[str, TopicValue]]:
        found: dict[str, dict[str, TopicValue]] = {}
        for result in cluster.any_connection().call(request, DescribeConfigsResponse).results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if result.error_code != ErrorCode.NONE:
                raise broker_error(
                    result.error_code, f"configs of topic {result.resource_name!r}", result.error_message
                )
            found[result.resource_name] = {
                entry.name: TopicValue(entry.value, entry.config_source == ConfigSource.DYNAMIC_TOPIC)
                for entry in result.configs
            }
        return found

    return cluster.retry(attempt)
