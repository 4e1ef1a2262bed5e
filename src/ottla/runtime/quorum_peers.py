"""The quorum's requests to other nodes: the state machine's messages as the protocol's, and the answers back.

Fetches wait at the leader, so they have a connection of their own; so have snapshots, which are large.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.core.quorum.effects import (
    NO_LEADER,
    Answer,
    BeginEpochRequest,
    EndEpochRequest,
    EpochAnswer,
    FetchAnswer,
    FetchRequest,
    FetchSnapshot,
    OffsetAndEpoch,
    Position,
    Request,
    VoteAnswer,
    VoteRequest,
)
from ottla.core.quorum.voters import ReplicaKey, Voter, VoterEndpoint
from ottla.model.errors import ErrorCode, MalformedMessageError
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.runtime.network import PeerError
from ottla.runtime.peers import Peers
from ottla.wire import fetch_client, fetch_types
from ottla.wire.messages import fetch_snapshot, quorum_nodes
from ottla.wire.messages import vote as vote_messages
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.messages.begin_quorum_epoch import (
    BeginPartition,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    BeginTopic,
)
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.end_quorum_epoch import (
    EndPartition,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    EndTopic,
    PreferredCandidate,
)
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.update_raft_voter import (
    SupportedKRaftVersions,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
)

LANE: Final = "quorum"
FETCH_LANE: Final = "quorum-fetch"
SNAPSHOT_LANE: Final = "quorum-snapshot"
FETCH_WAIT_MS: Final = 500
FETCH_API_KEY: Final = 1
FETCH_VERSION_MIN: Final = 17
"""The first one in which a replica names its directory."""
PRE_VOTE_SINCE: Final = 2


class QuorumPeers:
    """Asks other nodes, for this one."""

    __slots__ = ("_cluster_id", "_configured", "_fetch_bytes_max", "_peers", "_timeout_ms")

    def __init__(
        self,
        peers: Peers,
        cluster_id: str,
        *,
        timeout_ms: int,
        fetch_bytes_max: int,
        configured: Mapping[int, Position] | None = None,
    ) -> None:
        """`configured` says where this node's config finds voters; where they were recorded last is tried after it."""
        self._peers = peers
        self._configured = configured or {}
        self._cluster_id = cluster_id
        self._timeout_ms = timeout_ms
        self._fetch_bytes_max = fetch_bytes_max

    async def ask(self, to: Position, request: Request) -> Answer:
        """PeerError if there is no answer, or one that makes no sense."""
        first = self._configured.get(to.node_id, to)
        if first != to:
            # A cluster whose nodes all moved could not find itself by what its log says.
            try:
                return await self._ask(first, request)
            except PeerError as error:
                if not error.refused:
                    raise
        return await self._ask(to, request)

    async def _ask(self, to: Position, request: Request) -> Answer:
        try:
            if isinstance(request, VoteRequest):
                return await self._vote(to, request)
            if isinstance(request, FetchRequest):
                return await self._fetch(to, request)
            if isinstance(request, BeginEpochRequest):
                return await self._begin(to, request)
            return await self._end(to, request)
        except (IndexError, ValueError, MalformedMessageError) as error:
            raise PeerError(f"{to.host}:{to.port}", f"its answer makes no sense: {error}") from error

    async def _vote(self, to: Position, request: VoteRequest) -> VoteAnswer:
        partition = vote_messages.VotePartition(
            partition_index=0,
            replica_epoch=request.epoch,
            replica_id=request.candidate.id,
            replica_directory_id=request.candidate.directory_id,
            voter_directory_id=request.voter.directory_id,
            last_offset_epoch=request.last_epoch,
            last_offset=request.last_offset,
            pre_vote=request.pre_vote,
        )
        message = vote_messages.VoteRequest(
            cluster_id=self._cluster_id,
            voter_id=request.voter.id,
            topics=[vote_messages.VoteTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
        )
        peer = self._peers.to_address(to.host, to.port, LANE)
        answer = await peer.request(
            message, vote_messages.VoteResponse, timeout_ms=self._timeout_ms, version_min=PRE_VOTE_SINCE
        )
        self._check(to, answer.error_code)
        found = answer.topics[0].partitions[0]
        leader = _leader(found.leader_id, answer.node_endpoints)
        return VoteAnswer(ErrorCode(found.error_code), found.leader_epoch, found.leader_id, found.vote_granted, leader)

    async def _begin(self, to: Position, request: BeginEpochRequest) -> EpochAnswer:
        partition = BeginPartition(
            partition_index=0,
            voter_directory_id=request.voter.directory_id,
            leader_id=request.leader_id,
            leader_epoch=request.epoch,
        )
        message = BeginQuorumEpochRequest(
            cluster_id=self._cluster_id,
            voter_id=request.voter.id,
            topics=[BeginTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
            leader_endpoints=endpoints_to_wire(request.endpoints),
        )
        peer = self._peers.to_address(to.host, to.port, LANE)
        answer = await peer.request(message, BeginQuorumEpochResponse, timeout_ms=self._timeout_ms)
        return self._epoch_answer(to, answer)

    async def _end(self, to: Position, request: EndEpochRequest) -> EpochAnswer:
        partition = EndPartition(
            partition_index=0,
            leader_id=request.leader_id,
            leader_epoch=request.epoch,
            preferred_successors=[key.id for key in request.successors],
            preferred_candidates=[
                PreferredCandidate(candidate_id=key.id, candidate_directory_id=key.directory_id)
                for key in request.successors
            ],
        )
        message = EndQuorumEpochRequest(
            cluster_id=self._cluster_id,
            topics=[EndTopic(topic_name=METADATA_TOPIC, partitions=[partition])],
            leader_endpoints=endpoints_to_wire(request.endpoints),
        )
        peer = self._peers.to_address(to.host, to.port, LANE)
        answer = await peer.request(message, EndQuorumEpochResponse, timeout_ms=self._timeout_ms)
        return self._epoch_answer(to, answer)

    def _epoch_answer(self, to: Position, answer: BeginQuorumEpochResponse | EndQuorumEpochResponse) -> EpochAnswer:
        self._check(to, answer.error_code)
        found = answer.topics[0].partitions[0]
        leader = _leader(found.leader_id, answer.node_endpoints)
        return EpochAnswer(ErrorCode(found.error_code), found.leader_epoch, found.leader_id, leader)

    async def _fetch(self, to: Position, request: FetchRequest) -> FetchAnswer:
        partition = fetch_types.FetchPartition(
            0, request.epoch, request.fetch_offset, request.last_fetched_epoch, 0, self._fetch_bytes_max
        )
        follower = fetch_types.FollowerPartition(request.replica.directory_id, request.high_watermark)
        message = fetch_types.FetchRequest(
            replica_id=request.replica.id,
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=self._fetch_bytes_max,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[(METADATA_TOPIC_ID, [partition])],
            forgotten=[],
            rack_id="",
            cluster_id=self._cluster_id,
            replica_epoch=-1,
            followed={(METADATA_TOPIC_ID, 0): follower},
        )
        version, body = await self._peers.to_address(to.host, to.port, FETCH_LANE).request_raw(
            FETCH_API_KEY,
            fetch_types.VERSION_MAX,
            lambda version: fetch_client.encode_request(version, message),
            timeout_ms=self._timeout_ms + FETCH_WAIT_MS,
            version_min=FETCH_VERSION_MIN,
        )
        answer = fetch_client.parse_response(body, 0, version)
        self._check(to, answer.error_code)
        return _fetch_answer(request, answer)

    async def snapshot_part(
        self, effect: FetchSnapshot, position: int, bytes_max: int, replica: ReplicaKey
    ) -> tuple[int, bytes]:
        """The size of a snapshot, and its bytes from `position` on, as many as there are or fit."""
        part = fetch_snapshot.PartitionSnapshot(
            partition=0,
            current_leader_epoch=effect.epoch,
            snapshot_id=fetch_snapshot.SnapshotId(end_offset=effect.snapshot.offset, epoch=effect.snapshot.epoch),
            position=position,
            replica_directory_id=replica.directory_id,
        )
        message = fetch_snapshot.FetchSnapshotRequest(
            cluster_id=self._cluster_id,
            replica_id=replica.id,
            max_bytes=bytes_max,
            topics=[fetch_snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=[part])],
        )
        peer = self._peers.to_address(effect.leader.host, effect.leader.port, SNAPSHOT_LANE)
        answer = await peer.request(message, fetch_snapshot.FetchSnapshotResponse, timeout_ms=self._timeout_ms)
        self._check(effect.leader, answer.error_code)
        if not answer.topics or not answer.topics[0].partitions:
            raise PeerError(f"{effect.leader.host}:{effect.leader.port}", "its answer holds no snapshot")
        found = answer.topics[0].partitions[0]
        self._check(effect.leader, found.error_code)
        return found.size, bytes(found.unaligned_records or b"")

    async def last_fetch_ms(self, to: Position, key: ReplicaKey) -> int:
        """When a voter fetched last, by the leader's clock; -1 if it never did."""
        message = DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])]
        )
        peer = self._peers.to_address(to.host, to.port, LANE)
        answer = await peer.request(message, DescribeQuorumResponse, timeout_ms=self._timeout_ms, version_min=2)
        self._check(to, answer.error_code)
        replicas = [replica for topic in answer.topics for part in topic.partitions for replica in part.current_voters]
        times = [item.last_fetch_timestamp for item in replicas if item.replica_id == key.id]
        return max(times, default=-1)

    async def remove_voter(self, to: Position, voter: Voter) -> ErrorCode:
        message = RemoveRaftVoterRequest(
            cluster_id=self._cluster_id, voter_id=voter.id, voter_directory_id=voter.directory_id
        )
        peer = self._peers.to_address(to.host, to.port, LANE)
        answer = await peer.request(message, RemoveRaftVoterResponse, timeout_ms=self._timeout_ms)
        return ErrorCode(answer.error_code)

    async def add_voter(self, to: Position, voter: Voter) -> ErrorCode:
        message = AddRaftVoterRequest(
            cluster_id=self._cluster_id,
            timeout_ms=self._timeout_ms,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=endpoints_to_wire(voter.endpoints),
            # It needs this voter's fetches to be committed; nobody is to wait for that on this connection.
            ack_when_committed=False,
        )
        peer = self._peers.to_address(to.host, to.port, LANE)
        answer = await peer.request(message, AddRaftVoterResponse, timeout_ms=2 * self._timeout_ms)
        return ErrorCode(answer.error_code)

    async def update_voter(self, to: Position, voter: Voter, epoch: int) -> ErrorCode:
        message = UpdateRaftVoterRequest(
            cluster_id=self._cluster_id,
            current_leader_epoch=epoch,
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            listeners=endpoints_to_wire(voter.endpoints),
            kraft_version_feature=SupportedKRaftVersions(min_supported_version=0, max_supported_version=1),
        )
        peer = self._peers.to_address(to.host, to.port, LANE)
        answer = await peer.request(message, UpdateRaftVoterResponse, timeout_ms=self._timeout_ms)
        return ErrorCode(answer.error_code)

    @staticmethod
    def _check(to: Position, error_code: int) -> None:
        if error_code != ErrorCode.NONE:
            raise PeerError(f"{to.host}:{to.port}", f"it answered {ErrorCode(error_code).name}")


def endpoints_to_wire(endpoints: tuple[VoterEndpoint, ...]) -> list[quorum_nodes.LeaderEndpoint]:
    return [quorum_nodes.LeaderEndpoint(name=name, host=host, port=port) for name, host, port in endpoints]


def _leader(leader_id: int, endpoints: Any) -> Position | None:
    """Where the leader is that an answer names, if the answer says it."""
    return next((Position(leader_id, item.host, item.port) for item in endpoints if item.node_id == leader_id), None)


def _fetch_answer(request: FetchRequest, answer: fetch_client.FetchResponse) -> FetchAnswer:
    found = answer.topics[0][1][0]
    leader_id, epoch = found.current_leader or (NO_LEADER, request.epoch)
    diverging, snapshot = found.diverging_epoch, found.snapshot_id
    records = found.records if isinstance(found.records, memoryview) else None
    return FetchAnswer(
        ErrorCode(found.error_code),
        epoch,
        leader_id,
        found.high_watermark,
        None if diverging is None else OffsetAndEpoch(diverging.end_offset, diverging.epoch),
        None if snapshot is None else OffsetAndEpoch(snapshot.end_offset, snapshot.epoch),
        records,
        _leader(leader_id, answer.node_endpoints),
    )
