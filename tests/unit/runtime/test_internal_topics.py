"""Internal topics are made once, as the configs want them and the cluster can have them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.runtime.internal_topics import InternalTopics
from tests.unit.runtime.metadata import running


def test_a_lone_broker_gets_one_replica(tmp_path: Path) -> None:
    async def scenario() -> None:
        properties = {
            "offsets.topic.num.partitions": "7",
            "offsets.topic.segment.bytes": "5",
            "min.insync.replicas": "2",
        }
        async with running(tmp_path, properties) as (node, controller):
            topics = InternalTopics(controller, lambda: node.config, lambda: node.quorum.image)
            await asyncio.gather(*(topics.ensure(CONSUMER_OFFSETS_TOPIC) for _ in range(5)))
            await topics.ensure(CONSUMER_OFFSETS_TOPIC)
            await topics.ensure(TRANSACTION_STATE_TOPIC)
            image = node.quorum.image
            assert [len(state.replicas) for state in image.topics[CONSUMER_OFFSETS_TOPIC].partitions] == [1] * 7
            assert len(image.topics[TRANSACTION_STATE_TOPIC].partitions) == 50
            assert image.topic_configs(CONSUMER_OFFSETS_TOPIC) == {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "min.insync.replicas": "1",
                "segment.bytes": str(1 << 20),
            }
            assert image.topic_configs(TRANSACTION_STATE_TOPIC) == {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "segment.bytes": "104857600",
                "unclean.leader.election.enable": "false",
            }

    asyncio.run(scenario())


def test_without_its_topic_there_is_no_coordinator(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, {"offsets.topic.num.partitions": "20000"}) as (node, controller):
            topics = InternalTopics(controller, lambda: node.config, lambda: node.quorum.image)
            with pytest.raises(ApiError) as refused:
                await topics.ensure(CONSUMER_OFFSETS_TOPIC)
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(scenario())
