"""The quorum's answers to other nodes: the protocol's messages to the state machine, and its answers as messages.

Nothing leaves before the epoch and the vote that it rests on are on disk (`node.state_stored`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.core.quorum.effects import (
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    FetchRequest,
    Position,
    VoteRequest,
)
from ottla.core.quorum.voters import ReplicaKey, VoterEndpoint
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, ZERO_UUID
from ottla.runtime.metadata_snapshot import SnapshotId
from ottla.wire import fetch_types
from ottla.wire.fetch_types import EpochEndOffset, PartitionData
from ottla.wire.fields import CurrentLeader, NodeEndpoint
from ottla.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch_snapshot, quorum_nodes
from ottla.wire.messages import vote as vote_messages

if TYPE_CHECKING:
    from ottla.runtime.quorum_driver import QuorumDriver

SNAPSHOT_PART_BYTES_MAX: Final = 1 << 20


class QuorumRequests:
    """Answers for one node."""

    __slots__ = ("_cluster_id", "_node")

    def __init__(self, node: QuorumDriver, cluster_id: str) -> None:
        self._node = node
        self._cluster_id = cluster_id

    def _is_foreign(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and cluster_id != self._cluster_id

    async def vote(self, request: vote_messages.VoteRequest) -> vote_messages.VoteResponse:
        error, asked = self._only(request.cluster_id, [(t.topic_name, t.partitions) for t in request.topics])
        if asked is None or not isinstance(asked, vote_messages.VotePartition):
            return vote_messages.VoteResponse(error_code=error, topics=[])
        core = self._node.core
        found = core.vote_requested(
            VoteRequest(
                asked.replica_epoch,
                ReplicaKey(asked.replica_id, asked.replica_directory_id),
                ReplicaKey(request.voter_id, asked.voter_directory_id),
                asked.last_offset,
                asked.last_offset_epoch,
                asked.pre_vote,
            ),
            self._node.now_ms(),
        )
        await self._node.state_stored()
        result = vote_messages.VotePartitionResult(
            partition_index=0,
            error_code=found.error,
            leader_id=found.leader_id,
            leader_epoch=found.epoch,
            vote_granted=found.granted,
        )
        return vote_messages.VoteResponse(
            error_code=0,
            topics=[vote_messages.VoteTopicResult(topic_name=METADATA_TOPIC, partitions=[result])],
            node_endpoints=_endpoints(found.leader),
        )

    async def begin_quorum_epoch(
        self, request: begin_quorum_epoch.BeginQuorumEpochRequest
    ) -> begin_quorum_epoch.BeginQuorumEpochResponse:
        error, asked = self._only(request.cluster_id, [(t.topic_name, t.partitions) for t in request.topics])
        if not isinstance(asked, begin_quorum_epoch.BeginPartition):
            return begin_quorum_epoch.BeginQuorumEpochResponse(error_code=error)
        found = self._node.core.begin_epoch_requested(
            BeginEpochRequest(
                asked.leader_epoch,
                asked.leader_id,
                ReplicaKey(request.voter_id, asked.voter_directory_id),
                tuple(VoterEndpoint(item.name, item.host, item.port) for item in request.leader_endpoints),
            ),
            self._node.now_ms(),
        )
        await self._node.state_stored()
        return begin_quorum_epoch.BeginQuorumEpochResponse(
            error_code=0, topics=_epoch_topics(found), node_endpoints=_endpoints(found.leader)
        )

    async def end_quorum_epoch(
        self, request: end_quorum_epoch.EndQuorumEpochRequest
    ) -> end_quorum_epoch.EndQuorumEpochResponse:
        error, asked = self._only(request.cluster_id, [(t.topic_name, t.partitions) for t in request.topics])
        if not isinstance(asked, end_quorum_epoch.EndPartition):
            return end_quorum_epoch.EndQuorumEpochResponse(error_code=error)
        successors = [ReplicaKey(item.candidate_id, item.candidate_directory_id) for item in asked.preferred_candidates]
        found = self._node.core.end_epoch_requested(
            EndEpochRequest(
                asked.leader_epoch,
                asked.leader_id,
                tuple(successors or [ReplicaKey(node_id) for node_id in asked.preferred_successors]),
                tuple(VoterEndpoint(item.name, item.host, item.port) for item in request.leader_endpoints),
            ),
            self._node.now_ms(),
        )
        await self._node.state_stored()
        return end_quorum_epoch.EndQuorumEpochResponse(
            error_code=0, topics=_epoch_topics(found), node_endpoints=_endpoints(found.leader)
        )

    def _only(self, cluster_id: str | None, topics: list[tuple[str, object]]) -> tuple[ErrorCode, object]:
        """The one partition that there is, or why a request is not for it."""
        if self._is_foreign(cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, None
        if len(topics) != 1 or topics[0][0] != METADATA_TOPIC:
            return ErrorCode.INVALID_REQUEST, None
        partitions = topics[0][1]
        if not isinstance(partitions, list) or len(partitions) != 1:
            return ErrorCode.INVALID_REQUEST, None
        partition = partitions[0]
        index = getattr(partition, "partition_index", getattr(partition, "partition", 0))
        return (ErrorCode.NONE, partition) if index == 0 else (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)

    async def fetch(self, request: fetch_types.FetchRequest) -> tuple[ErrorCode, PartitionData, list[NodeEndpoint]]:
        """A fetch of the metadata log: waits until there is something new, or for as long as it was told."""
        node = self._node
        [(key, partitions)] = request.topics
        if self._is_foreign(request.cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID, PartitionData(0), []
        if len(partitions) != 1 or partitions[0].index != 0:
            return ErrorCode.INVALID_REQUEST, PartitionData(0), []
        asked = partitions[0]
        followed = request.followed.get((key, 0))
        replica = ReplicaKey(request.replica_id, ZERO_UUID if followed is None else followed.replica_directory_id)
        known = followed.high_watermark if followed is not None else fetch_types.ANY_HIGH_WATERMARK
        wanted = FetchRequest(asked.current_leader_epoch, replica, asked.fetch_offset, asked.last_fetched_epoch, known)
        core = node.core
        found = core.fetch_requested(wanted, node.now_ms())
        await node.state_stored()
        if found.error is ErrorCode.NONE and found.diverging is None and found.snapshot is None:
            await node.news(wanted.fetch_offset, known, min(request.max_wait_ms, node.fetch_wait_ms_max))
            node.check_serves()
            if not node.leads(wanted.epoch) or wanted.fetch_offset < node.log.start_offset:
                # Whoever is asked anew says who leads now.
                found = core.fetch_requested(wanted, node.now_ms())
        records = None
        plain = found.error is ErrorCode.NONE and found.diverging is None and found.snapshot is None
        if plain:
            records = node.log.read(wanted.fetch_offset, min(asked.max_bytes, request.max_bytes))
        diverging, snapshot = found.diverging, found.snapshot
        data = PartitionData(
            0,
            found.error,
            core.high_watermark,
            -1,
            node.log.start_offset,
            records=records,
            diverging_epoch=None if diverging is None else EpochEndOffset(diverging.epoch, diverging.offset),
            current_leader=CurrentLeader(core.leader_id, core.epoch),
            snapshot_id=None if snapshot is None else fetch_types.SnapshotId(snapshot.offset, snapshot.epoch),
        )
        leader = core.leader
        endpoints = [] if leader is None else [NodeEndpoint(core.leader_id, leader.host, leader.port)]
        return ErrorCode.NONE, data, endpoints

    async def fetch_snapshot(
        self, request: fetch_snapshot.FetchSnapshotRequest
    ) -> fetch_snapshot.FetchSnapshotResponse:
        """A part of a snapshot file."""
        node = self._node
        node.check_serves()
        error, asked = self._only(request.cluster_id, [(t.name, t.partitions) for t in request.topics])
        if not isinstance(asked, fetch_snapshot.PartitionSnapshot):
            return fetch_snapshot.FetchSnapshotResponse(error_code=error, topics=[])
        replica = ReplicaKey(request.replica_id, asked.replica_directory_id)
        failure = node.core.snapshot_requested(replica, asked.current_leader_epoch)
        snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        size, data = 0, b""
        if failure is ErrorCode.NONE:
            node.core.replica_lives(replica, node.now_ms())
            bytes_max = max(1, min(request.max_bytes, SNAPSHOT_PART_BYTES_MAX))
            failure, size, data = await node.snapshots.read_part(snapshot, asked.position, bytes_max)
        leader = node.core.leader
        result = fetch_snapshot.PartitionSnapshotResult(
            index=0,
            error_code=failure,
            snapshot_id=asked.snapshot_id,
            current_leader=fetch_snapshot.LeaderIdAndEpoch(leader_id=node.core.leader_id, leader_epoch=node.core.epoch),
            size=size,
            position=asked.position,
            unaligned_records=data,
        )
        return fetch_snapshot.FetchSnapshotResponse(
            error_code=0,
            topics=[fetch_snapshot.TopicSnapshotResult(name=METADATA_TOPIC, partitions=[result])],
            node_endpoints=_endpoints(leader),
        )


def is_metadata_fetch(request: fetch_types.FetchRequest) -> bool:
    """Whether a fetch is for the metadata log alone."""
    if len(request.topics) != 1:
        return False
    topic = request.topics[0][0]
    return topic == METADATA_TOPIC if isinstance(topic, str) else topic.int == METADATA_TOPIC_ID.int


def _epoch_topics(found: EpochAnswer) -> list[quorum_nodes.EpochTopicResult]:
    result = quorum_nodes.EpochPartitionResult(
        partition_index=0, error_code=found.error, leader_id=found.leader_id, leader_epoch=found.epoch
    )
    return [quorum_nodes.EpochTopicResult(topic_name=METADATA_TOPIC, partitions=[result])]


def _endpoints(leader: Position | None) -> list[quorum_nodes.NodeEndpoint]:
    return (
        []
        if leader is None
        else [quorum_nodes.NodeEndpoint(node_id=leader.node_id, host=leader.host, port=leader.port)]
    )
