"""Configs of many topics are asked for in bounded requests; a topic that is gone is left out."""

from __future__ import annotations

from ottla.client.cluster import Cluster
from ottla.client.topic_configs import TOPICS_PER_REQUEST, TopicValue, describe_topics
from ottla.model.configs.definition import ConfigSource
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.wire.schema import decode, encode
from tests.unit.client.scripted_broker import ScriptedBroker

DESCRIBE_CONFIGS = 32


def answer(version: int, frame: memoryview, position: int) -> bytes:
    request = decode(DescribeConfigsRequest, frame[position:], version)
    results = []
    for resource in request.resources:
        gone = resource.resource_name == "gone"
        own = resource.resource_name == "own"
        entry = DescribeConfigsResourceResult(
            name="k",
            value="v",
            read_only=False,
            config_source=ConfigSource.DYNAMIC_TOPIC if own else ConfigSource.DEFAULT,
            is_sensitive=False,
        )
        results.append(
            DescribeConfigsResult(
                error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if gone else 0,
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[] if gone else [entry],
            )
        )
    return encode(DescribeConfigsResponse(results=results), version)


def test_values_and_where_they_are_from() -> None:
    with ScriptedBroker() as broker:
        broker.offered[DESCRIBE_CONFIGS] = (0, 4)
        broker.answers[DESCRIBE_CONFIGS] = answer
        with Cluster(broker.settings()) as cluster:
            found = describe_topics(cluster, ["own", "gone", "plain"], ["k"])
            assert found == {"own": {"k": TopicValue("v", True)}, "plain": {"k": TopicValue("v", False)}}
            before = broker.served.count(DESCRIBE_CONFIGS)
            many = [f"t{number}" for number in range(2 * TOPICS_PER_REQUEST + 1)]
            assert len(describe_topics(cluster, many, ["k"])) == len(many)
            assert broker.served.count(DESCRIBE_CONFIGS) - before == 3
