"""Kafka's own tool reads what a change of leaders writes: eligible replicas, the last known leader, recovery."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from ottla.core.controller.records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
)
from ottla.model.ids import uuid_to_base64
from ottla.runtime.metadata_codec import build_batch
from tests.unit.runtime import test_metadata_log_kafka as kafka

pytestmark = kafka.pytestmark
TOPIC, DIRECTORY = UUID(int=7 << 100), UUID(int=9 << 100)


def test_kafka_reads_every_field(tmp_path: Path) -> None:
    records: list[Record] = [
        PartitionRecord(
            partition_id=0,
            topic_id=TOPIC,
            replicas=(1, 2),
            isr=(),
            leader=-1,
            eligible_leader_replicas=(2,),
            last_known_elr=(1,),
            leader_recovery_state=1,
        ),
        PartitionChangeRecord(
            partition_id=0,
            topic_id=TOPIC,
            isr=(2,),
            leader=2,
            replicas=(2, 3),
            removing_replicas=(1,),
            adding_replicas=(3,),
            directories=(DIRECTORY,),
            eligible_leader_replicas=(),
            last_known_elr=(4, 5),
            leader_recovery_state=0,
        ),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=5, fenced=True, in_controlled_shutdown=False),
    ]
    segment = tmp_path / "00000000000000000000.log"
    segment.write_bytes(build_batch(records, base_offset=0, leader_epoch=1, now_ms=1_700_000_000_000))
    partition, change, broker = [record["data"] for record in kafka.payloads(kafka.dump(segment))]
    assert {name: partition[name] for name in ("isr", "leader", "leaderRecoveryState")} == {
        "isr": [],
        "leader": -1,
        "leaderRecoveryState": 1,
    }
    assert (partition["eligibleLeaderReplicas"], partition["lastKnownElr"]) == ([2], [1])
    assert change == {
        "partitionId": 0,
        "topicId": uuid_to_base64(TOPIC),
        "isr": [2],
        "leader": 2,
        "replicas": [2, 3],
        "removingReplicas": [1],
        "addingReplicas": [3],
        "leaderRecoveryState": 0,
        "directories": [uuid_to_base64(DIRECTORY)],
        "eligibleLeaderReplicas": [],
        "lastKnownElr": [4, 5],
    }
    assert (broker["brokerId"], broker["fenced"], broker["inControlledShutdown"]) == (1, 1, -1)
