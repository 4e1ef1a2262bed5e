"""What a frame is called in a trace."""

from __future__ import annotations

from struct import Struct
from typing import Final

_REQUEST: Final = Struct(">hhi")
_ANSWER: Final = Struct(">i")

NAMES: Final = {
    0: "Produce", 1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "OffsetCommit", 9: "OffsetFetch",
    10: "FindCoordinator", 11: "JoinGroup", 12: "Heartbeat", 13: "LeaveGroup", 14: "SyncGroup", 18: "ApiVersions",
    19: "CreateTopics", 20: "DeleteTopics", 22: "InitProducerId", 23: "OffsetForLeaderEpoch", 24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn", 26: "EndTxn", 27: "WriteTxnMarkers", 28: "TxnOffsetCommit", 37: "CreatePartitions",
    43: "ElectLeaders", 44: "IncrementalAlterConfigs", 45: "AlterPartitionReassignments", 52: "Vote",
    53: "BeginQuorumEpoch", 54: "EndQuorumEpoch", 55: "DescribeQuorum", 56: "AlterPartition", 58: "Envelope",
    59: "FetchSnapshot", 62: "BrokerRegistration", 63: "BrokerHeartbeat", 67: "AllocateProducerIds",
    68: "ConsumerGroupHeartbeat", 80: "AddRaftVoter", 81: "RemoveRaftVoter", 82: "UpdateRaftVoter",
}  # fmt: skip


def frame_name(frame: bytes, connection: int, asked: dict[tuple[int, int], str], *, is_request: bool) -> str:
    """The request's API and number, or the answer to it."""
    if is_request:
        key, version, correlation_id = _REQUEST.unpack_from(frame)
        name = f"{NAMES.get(key, f'api {key}')} v{version} #{correlation_id}"
        asked[connection, correlation_id] = name
        return name
    (correlation_id,) = _ANSWER.unpack_from(frame)
    return f"answer to {asked.get((connection, correlation_id), f'#{correlation_id}')}"
