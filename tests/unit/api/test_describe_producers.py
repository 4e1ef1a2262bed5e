"""DescribeProducers tells a topic that can never be from one that is not there."""

from __future__ import annotations

import pytest

from ottla.api import describe_producers
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from tests.unit.api.replica_services import context, services
from tests.unit.runtime.hosted import run
from tests.unit.runtime.replicas import TOPIC, Cluster


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        (TOPIC, 0, ErrorCode.NONE),
        (TOPIC, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("absent", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_each_partition_has_a_code_of_its_own(topic: str, index: int, code: ErrorCode) -> None:
    async def scenario() -> None:
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
        answer = describe_producers.handle(context(services(Cluster(1)), 61, 0), request)
        assert isinstance(answer, DescribeProducersResponse)
        assert answer.topics[0].partitions[0].error_code == code

    run(scenario)
