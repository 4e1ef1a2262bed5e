"""Kafka's own tools read our metadata log and its snapshots.

Needs Java and Kafka's jars: KAFKA_JARS names the directory that holds them, or KAFKA_HOME an installation.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ottla.core.controller.commands import (
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    MorePartitions,
    NewTopic,
    ResourceChange,
    TopicReference,
)
from ottla.model.configs.definition import ResourceType
from ottla.model.ids import uuid_to_base64
from ottla.runtime.producer_ids import ProducerIds
from tests.unit.runtime.metadata import running


def kafka_jars() -> Path | None:
    """The directory of Kafka's jars, if the environment names one."""
    named = [os.environ.get("KAFKA_JARS"), os.path.join(os.environ.get("KAFKA_HOME", "/nonexistent"), "libs")]
    found = [Path(path) for path in named if path and any(Path(path).glob("kafka-tools-*.jar"))]
    return found[0] if found else None


JARS = kafka_jars()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(JARS is None or shutil.which("java") is None, reason="needs java, and KAFKA_JARS or KAFKA_HOME"),
]


def dump(*files: Path) -> str:
    main = "org.apache.kafka.tools.DumpLogSegments"
    command = ["java", "-cp", f"{JARS}/*", main, "--cluster-metadata-decoder", "--files", ",".join(map(str, files))]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout


def payloads(text: str) -> list[dict[str, Any]]:
    return [json.loads(match) for match in re.findall(r"payload: (\{.*\})$", text, re.MULTILINE)]


def test_kafka_dumps_the_log_and_the_snapshot(tmp_path: Path) -> None:
    async def scenario() -> Any:
        async with running(tmp_path, {"metadata.log.max.snapshot.interval.ms": "1000"}) as (node, controller):
            ids = ProducerIds(controller, broker_id=1, broker_epoch=node.quorum.image.brokers[1].epoch)
            await ids.next()
            await controller.submit(CreateTopics([NewTopic("a", 2, configs=[("retention.ms", "5")]), NewTopic("b")]))
            await controller.submit(CreatePartitions([MorePartitions("b", 3)]))
            change = ResourceChange(ResourceType.BROKER, "", [ConfigChange("max.connections", 0, "9")])
            await controller.submit(IncrementalAlterConfigs([change]))
            await node.register(controller, clean_start=False)
            await controller.submit(DeleteTopics([TopicReference("a")]))
            [segment] = node.directory.glob("*.log")
            log = segment.read_bytes()
            node.clock.ms += 1000
            await controller.submit(CreateTopics([NewTopic("c")]))
            await node.quorum.close()
            (tmp_path / segment.name).write_bytes(log)
            return node, tmp_path / segment.name

    node, segment = asyncio.run(scenario())
    [snapshot] = node.directory.glob("*.checkpoint")
    text = dump(segment, snapshot)
    assert "isvalid: false" not in text
    assert "Exception" not in text
    assert 'LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1}],"grantingVoters":[{"voterId":1}]}' in text
    of_log, of_snapshot = text.split(f"Dumping {snapshot}")
    assert Counter(record["type"] for record in payloads(of_log)) == {
        "FEATURE_LEVEL_RECORD": 4,
        "REGISTER_BROKER_RECORD": 2,
        "PRODUCER_IDS_RECORD": 1,
        "TOPIC_RECORD": 2,
        "PARTITION_RECORD": 5,
        "PARTITION_CHANGE_RECORD": 5,
        "CONFIG_RECORD": 3,
        "REMOVE_TOPIC_RECORD": 1,
    }
    assert "SnapshotHeader" in of_snapshot
    assert "SnapshotFooter" in of_snapshot
    topics = {record["data"]["name"]: record for record in payloads(of_snapshot) if record["type"] == "TOPIC_RECORD"}
    assert topics.keys() == {"b", "c"}
    assert topics["b"]["data"]["topicId"] == uuid_to_base64(node.quorum.image.topics["b"].id)
    epochs = [
        record["data"]["leaderEpoch"]
        for record in payloads(of_snapshot)
        if record["type"] == "PARTITION_RECORD" and record["data"]["topicId"] == topics["b"]["data"]["topicId"]
    ]
    assert epochs == [1, 1, 1]
