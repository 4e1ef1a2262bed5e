"""The APIs of the metadata quorum: what its replicas ask each other, and who votes."""

from __future__ import annotations

from typing import Final

from ottla.api import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from ottla.api.entry import Api, Operation, Permission, Resource, declared_api
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.wire.messages.vote import VoteRequest, VoteResponse

_BETWEEN_NODES: Final = Permission(Resource.CLUSTER, Operation.CLUSTER_ACTION)
_ALTER: Final = Permission(Resource.CLUSTER, Operation.ALTER)

QUORUM_APIS: Final[tuple[Api, ...]] = (
    declared_api(VoteRequest, VoteResponse, vote.handle, _BETWEEN_NODES, error_response=vote.failed),
    declared_api(
        BeginQuorumEpochRequest,
        BeginQuorumEpochResponse,
        begin_quorum_epoch.handle,
        _BETWEEN_NODES,
        error_response=begin_quorum_epoch.failed,
    ),
    declared_api(
        EndQuorumEpochRequest,
        EndQuorumEpochResponse,
        end_quorum_epoch.handle,
        _BETWEEN_NODES,
        error_response=end_quorum_epoch.failed,
    ),
    declared_api(
        FetchSnapshotRequest,
        FetchSnapshotResponse,
        fetch_snapshot.handle,
        _BETWEEN_NODES,
        error_response=fetch_snapshot.failed,
    ),
    declared_api(
        AddRaftVoterRequest,
        AddRaftVoterResponse,
        add_raft_voter.handle,
        _ALTER,
        error_response=add_raft_voter.failed,
        forwarded=True,
    ),
    declared_api(
        RemoveRaftVoterRequest,
        RemoveRaftVoterResponse,
        remove_raft_voter.handle,
        _ALTER,
        error_response=remove_raft_voter.failed,
        forwarded=True,
    ),
    declared_api(
        UpdateRaftVoterRequest,
        UpdateRaftVoterResponse,
        update_raft_voter.handle,
        _BETWEEN_NODES,
        error_response=update_raft_voter.failed,
    ),
)
