"""What must hold in a quorum after each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.core.quorum.effects import VoteAnswer, VoteRequest
from ottla.core.quorum.roles import Leader, Resigned
from ottla.model.ids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.core.quorum.voters import ReplicaKey
    from tests.unit.core.quorum.cluster import Cluster, Entry, Node


class BrokenInvariantError(AssertionError):
    """The name of the invariant comes first."""


def require(holds: bool, name: str, details: str = "") -> None:
    if not holds:
        raise BrokenInvariantError(f"{name}: {details}")


class Invariants:
    """Knows what was ever committed, and by whom each epoch was led."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.committed: list[Entry] = []
        self.leaders: dict[int, tuple[int, int]] = {}
        self._lost: dict[ReplicaKey, list[Entry]] = {}
        """What stood on disks that are gone: it counted when they had it."""
        self._votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._high_watermarks: dict[tuple[int, int], int] = {}

    def disk_lost(self, node: Node) -> None:
        self._lost[node.key] = node.log.whole()[: node.log.synced]

    def watched(self, node: Node, request: VoteRequest, answer: Callable[[VoteAnswer], None]) -> Callable[[Any], None]:
        """The same answer, seen when it leaves: what a crash kept from leaving was never said."""

        def answer_seen(found: VoteAnswer) -> None:
            self._vote_answered(node, request, found)
            answer(found)

        return answer_seen

    def _vote_answered(self, node: Node, request: VoteRequest, answer: VoteAnswer) -> None:
        """One vote an epoch, by the very replica that was asked. A candidate has voted for itself."""
        if not answer.granted:
            return
        meant = request.voter.directory_id in (ZERO_UUID, node.disk.directory_id)
        require(meant, "another disk is another voter", f"node {node.id}")
        if not request.pre_vote:
            self._voted(node, request.epoch, request.candidate)

    def _voted(self, node: Node, epoch: int, candidate: ReplicaKey) -> None:
        before = self._votes.setdefault((node.key, epoch), candidate)
        require(before == candidate, "one vote an epoch", f"node {node.id}, {epoch}: {before.id} and {candidate.id}")

    def leader_elected(self, node: Node, epoch: int) -> None:
        """One leader an epoch, and it has all that is committed."""
        require(epoch not in self.leaders, "one leader an epoch", f"{epoch}: {self.leaders.get(epoch)} and {node.id}")
        self.leaders[epoch] = (node.id, node.life)
        self._voted(node, epoch, node.key)
        whole = node.log.whole()
        missing = whole[: len(self.committed)] != self.committed
        require(not missing, "a leader has all that is committed", f"node {node.id}, epoch {epoch}")

    def check(self) -> None:
        for node in self._cluster.nodes.values():
            if node.core is not None:
                self._check_node(node)

    def _check_node(self, node: Node) -> None:
        core, life = node.core, (node.id, node.life)
        assert core is not None
        require(core.epoch >= self._epochs.get(life, node.disk.state.epoch), "epochs rise", f"node {node.id}")
        self._epochs[life] = core.epoch
        before = self._high_watermarks.get(life, 0)
        if core.high_watermark == before and life in self._high_watermarks:
            return
        require(core.high_watermark >= before, "the high watermark rises", f"node {node.id}")
        require(core.high_watermark <= node.log.end_offset, "the high watermark is within the log", f"node {node.id}")
        self._high_watermarks[life] = core.high_watermark
        if isinstance(core.role, Leader) and core.high_watermark > max(before, node.log.start):
            last = node.log.whole()[core.high_watermark - 1]
            require(last.epoch == core.epoch, "a leader commits through its own epoch", f"node {node.id}")
        self._check_committed(node, core.high_watermark)

    def _check_committed(self, node: Node, high_watermark: int) -> None:
        below = node.log.whole()[:high_watermark]
        same = min(len(below), len(self.committed))
        require(below[:same] == self.committed[:same], "committed entries are equal", f"node {node.id}")
        if len(below) > len(self.committed):
            assert node.core is not None
            require(isinstance(node.core.role, Leader | Resigned), "a leader commits first", f"node {node.id}")
            self._check_majority(node, below)
            self.committed = below

    def _check_majority(self, leader: Node, below: list[Entry]) -> None:
        """Enough voters, taken by node and directory, have it on disk."""
        assert leader.core is not None
        voters, nodes = leader.core.voters, self._cluster.nodes
        have = 0
        for voter in voters.voters:
            node = nodes.get(voter.id)
            if node is not None and voters.includes(node.key):
                log = node.log
                have += log.synced >= len(below) and log.whole()[: len(below)] == below
            have += self._lost.get(voter.key, [])[: len(below)] == below
        needed = len(voters.voters) // 2 + 1 if voters.is_known else len(voters.voters)
        require(have >= needed, "committed means on a majority", f"{len(below)} is on {have} of {len(voters.voters)}")
