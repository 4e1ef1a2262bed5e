"""FetchSnapshot: a replica of the metadata log reads a part of a snapshot from the leader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import ZERO_UUID
from ottla.wire.messages.quorum_nodes import NodeEndpoint
from ottla.wire.schema import Int16, Int32, Int64, Message, Records, String, Uuid, ignorable, since, tag


class SnapshotId(Message):
    """A snapshot by where it ends."""

    end_offset: Int64
    epoch: Int32


class PartitionSnapshot(Message):
    """Which part of which snapshot."""

    partition: Int32
    current_leader_epoch: Int32
    snapshot_id: SnapshotId
    position: Int64
    replica_directory_id: Annotated[Uuid, since(1), tag(0), ignorable] = ZERO_UUID


class TopicSnapshot(Message):
    """Partitions of one topic."""

    name: String
    partitions: Sequence[PartitionSnapshot]


class FetchSnapshotRequest(Message, api_key=59, versions=(0, 1), flexible_since=0):
    """Asks for a part of a snapshot."""

    cluster_id: Annotated[String | None, tag(0)] = None
    replica_id: Int32 = -1
    max_bytes: Int32 = 0x7FFF_FFFF
    topics: Sequence[TopicSnapshot]


class LeaderIdAndEpoch(Message, frozen=True):  # type: ignore[misc]
    """Who leads."""

    leader_id: Int32 = 0
    leader_epoch: Int32 = 0


class PartitionSnapshotResult(Message):
    """A part of the file. Kafka calls it PartitionSnapshot."""

    index: Int32
    error_code: Int16
    snapshot_id: SnapshotId
    current_leader: Annotated[LeaderIdAndEpoch, tag(0)] = LeaderIdAndEpoch()
    size: Int64
    position: Int64
    unaligned_records: Records


class TopicSnapshotResult(Message):
    """The partitions of one topic. Kafka calls it TopicSnapshot."""

    name: String
    partitions: Sequence[PartitionSnapshotResult]


class FetchSnapshotResponse(Message, api_key=59, versions=(0, 1), flexible_since=0):
    """The answer."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    error_code: Int16
    topics: Sequence[TopicSnapshotResult]
    node_endpoints: Annotated[Sequence[NodeEndpoint], since(1), tag(0)] = []
