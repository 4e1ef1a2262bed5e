"""The metadata log as the rest of a node sees it: what is in it is what the cluster has agreed on.

`quorum_node` is what stands behind it. Writing is for the leader: `write` puts a batch of records at the end of the log
and hands back a future, which is done when a majority of the voters has it on disk, it is applied to `image`, and the
subscribers know: who is answered "created" finds the topic on this node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.core.controller.records import Record
from ottla.core.quorum.voters import VoterEndpoint

if TYPE_CHECKING:
    from ottla.model.errors import ErrorCode
    from ottla.wire.fetch_types import FetchRequest, PartitionData
    from ottla.wire.fields import NodeEndpoint
    from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest
    from ottla.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
    from ottla.wire.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
    from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
    from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
    from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest
    from ottla.wire.messages.vote import VoteRequest, VoteResponse

Subscriber: TypeAlias = Callable[[MetadataImage, ImageDelta], None]


class QuorumReplica(NamedTuple):
    """How far one node is with the metadata log."""

    replica_id: int
    directory_id: UUID
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """What DescribeQuorum answers."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: tuple[tuple[int, tuple[VoterEndpoint, ...]], ...] = ()
    """Where each voter listens."""


class MetadataQuorum(Protocol):
    """The metadata log as the rest of a broker sees it."""

    @property
    def node_id(self) -> int: ...

    @property
    def epoch(self) -> int: ...

    @property
    def leader_id(self) -> int:
        """Who leads in this epoch; -1 while that is not known."""

    @property
    def is_leader(self) -> bool:
        """Whether this node leads and has applied all that was written before it did: it may decide."""

    def subscribe_leadership(self, listener: Callable[[], None]) -> None:
        """Call this on the loop when one of the three above has changed."""

    def address_of_leader(self) -> tuple[str, int] | None: ...

    @property
    def image(self) -> MetadataImage:
        """What is committed."""

    @property
    def next_offset(self) -> int:
        """Where the next record that is written will stand."""

    def write(self, records: Sequence[Record]) -> Awaitable[int]:
        """Begin to append records as one batch, and wait for their commit, which gives the offset of the last one.

        The write itself happens at once. An error that it raises means that nothing was written.
        """

    async def append(self, records: Sequence[Record]) -> int:
        """`write`, and wait."""

    async def settled(self) -> None:
        """Return when everything written up to now is committed."""

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call this on the loop after each commit, with the image and what changed in it."""

    def describe(self) -> QuorumDescription: ...

    async def resign(self) -> None:
        """Before a planned stop: if this node leads, let another one."""


class QuorumMember(MetadataQuorum, Protocol):
    """The metadata log as other nodes see it: what they ask of this one, in the protocol's messages."""

    async def vote(self, request: VoteRequest) -> VoteResponse: ...

    async def begin_quorum_epoch(self, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse: ...

    async def end_quorum_epoch(self, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse: ...

    async def fetch(self, request: FetchRequest) -> tuple[ErrorCode, PartitionData, list[NodeEndpoint]]:
        """The error of the whole request, the one partition, and where the leader is."""

    async def fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse: ...

    async def add_voter(self, request: AddRaftVoterRequest) -> None:
        """ApiError if it cannot be; so with the next two."""

    async def remove_voter(self, request: RemoveRaftVoterRequest) -> None: ...

    async def update_voter(self, request: UpdateRaftVoterRequest) -> None: ...
