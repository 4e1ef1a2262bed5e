"""What DescribeQuorum and the metrics say about the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from ottla.core.quorum.progress import ReplicaProgress
from ottla.core.quorum.roles import Leader
from ottla.core.quorum.voters import ReplicaKey
from ottla.runtime.quorum import QuorumDescription, QuorumReplica

if TYPE_CHECKING:
    from ottla.runtime.quorum_driver import QuorumDriver


def describe(node: QuorumDriver) -> QuorumDescription:
    """The whole truth where this node leads; else only who leads and votes, and where this node itself is."""
    core, role = node.core, node.core.role
    own = core.key
    now_ms, shift_ms = node.world.clock.now_ms(), node.world.clock.now_ms() - node.now_ms()

    def shown(key: ReplicaKey, found: ReplicaProgress | None) -> QuorumReplica:
        if key == own or (key.id == own.id and key.directory_id == UUID(int=0)):
            return QuorumReplica(own.id, own.directory_id, node.log.end_offset, now_ms, now_ms)
        if found is None:
            return QuorumReplica(key.id, key.directory_id, -1, -1, -1)
        fetched_ms, caught_up_ms = (ms + shift_ms if ms >= 0 else -1 for ms in (found.fetched_ms, found.caught_up_ms))
        return QuorumReplica(key.id, found.key.directory_id, found.end_offset, fetched_ms, caught_up_ms)

    progress = role.progress if isinstance(role, Leader) else None
    voters = tuple(shown(voter.key, None if progress is None else progress.of(voter)) for voter in core.voters.voters)
    observers = () if progress is None else tuple(shown(item.key, item) for item in progress.observers(core.voters))
    return QuorumDescription(
        leader_id=core.leader_id,
        leader_epoch=core.epoch,
        high_watermark=core.high_watermark,
        voters=voters,
        observers=observers,
        endpoints=tuple((voter.id, voter.endpoints) for voter in core.voters.voters),
    )
