"""The metadata quorum: one leader an epoch, elected by votes that are on disk, commits what a majority has on disk."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ottla.core.quorum.roles import Leader
from simulator.checkers.committed import CommittedLog
from simulator.findings import Findings

if TYPE_CHECKING:
    from ottla.core.quorum.core import QuorumCore
    from ottla.runtime.quorum_node import QuorumNode
    from simulator.node import SimulatedNode

STATE_FILE: Final = "quorum-state"


class QuorumState:
    """What has been seen of the quorum."""

    def __init__(self, nodes: list[SimulatedNode], findings: Findings) -> None:
        self._nodes = nodes
        self._findings = findings
        self._committed = CommittedLog("__cluster_metadata", findings)
        self._leaders: dict[int, str] = {}
        self._marks: dict[tuple[str, int, str], int] = {}
        """The highest value seen of what must not go back, by node, process and name."""
        self._committed_up_to = 0
        self._voters: Sequence[int] = ()
        """As the leader that was looked at last knew them."""
        self.elections = 0

    def changed(self, node: SimulatedNode, quorum: QuorumNode) -> None:
        """A node's epoch, vote, role or high watermark is another."""
        core = quorum.core
        self._never_back(node, "quorum epoch", core.epoch)
        self._never_back(node, "quorum high watermark", core.high_watermark)
        if not isinstance(core.role, Leader):
            return
        known = self._leaders.get(core.epoch)
        if known is None:
            self._leaders[core.epoch] = node.host
            self.elections += 1
            self._check_votes(node, core, quorum.directory)
        elif known != node.host:
            self._findings.add("one leader an epoch", f"{known} and {node.host} lead the quorum in {core.epoch}")
        if core.high_watermark > self._committed_up_to:
            self._committed_up_to = core.high_watermark
            self._check_majority(node, core)
        self._voters = core.voters.ids

    def look(self, node: SimulatedNode, quorum: QuorumNode) -> None:
        log = quorum.log.log
        self._committed.look(node.host, node.starts, log, min(quorum.high_watermark, log.log_end_offset))

    def _check_votes(self, leader: SimulatedNode, core: QuorumCore, directory: str) -> None:
        """Whoever leads has the votes of a majority, and each is where a crash does not take it."""
        voters = core.voters.ids
        granted = [voter for voter in voters if self._has_voted(voter, leader.node_id, core.epoch, directory)]
        if not self._is_majority(len(granted), len(voters)):
            text = f"{leader.host} leads in {core.epoch}, of voters {voters} only {granted} have that on disk"
            self._findings.add("a leader's votes are on disk", text)

    def _has_voted(self, voter: int, candidate: int, epoch: int, directory: str) -> bool:
        node = self._node(voter)
        if node is None:
            return False
        stored = node.medium.durable_bytes(f"{directory}/{STATE_FILE}")
        if stored is None:
            return False
        state = json.loads(stored)
        return bool(state["leaderEpoch"] > epoch or (state["leaderEpoch"], state["votedId"]) == (epoch, candidate))

    def _check_majority(self, leader: SimulatedNode, core: QuorumCore) -> None:
        """What a leader calls committed is on the disks of a majority, as far as they run and can be asked.

        Where it has changed the voters in the same event either majority will do: they share a voter.
        """
        voters = core.voters.ids
        having = [voter for voter in voters if self._may_have(voter, core.high_watermark)]
        before = [voter for voter in self._voters if self._may_have(voter, core.high_watermark)]
        if not self._is_majority(len(having), len(voters)) and not self._is_majority(len(before), len(self._voters)):
            text = f"{leader.host} has committed up to {core.high_watermark}, which {having} of {voters} have at most"
            self._findings.add("what is committed is on a majority", text)

    def _may_have(self, voter: int, offset: int) -> bool:
        node = self._node(voter)
        quorum = None if node is None or not node.is_alive else node.quorum
        return quorum is None or quorum.log.log.recovery_point >= offset

    @staticmethod
    def _is_majority(count: int, of: int) -> bool:
        return count > of // 2

    def _node(self, node_id: int) -> SimulatedNode | None:
        return next((node for node in self._nodes if node.node_id == node_id), None)

    def _never_back(self, node: SimulatedNode, what: str, value: int) -> None:
        key = node.host, node.starts, what
        before = self._marks.get(key, value)
        if value < before:
            self._findings.add(f"the {what} never goes back", f"{node.host}: from {before} to {value}")
        self._marks[key] = max(before, value)
