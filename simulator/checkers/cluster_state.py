"""The insides of running brokers, looked at after every event: the quorum and the replicas of every partition.

Theory of operation. After each event of a node `look_at` compares a few numbers with what they were: roles, epochs,
high watermarks, ends of logs. Only what has changed is judged (`quorum_state`, `replicas`), so that most events cost
next to nothing. What needs the contents of logs (`committed`) is compared now and then by `look`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulator.checkers.quorum_state import QuorumState
from simulator.checkers.replicas import ReplicaRow, Replicas
from simulator.findings import Findings

if TYPE_CHECKING:
    from ottla.core.quorum.effects import ElectionState
    from ottla.core.quorum.roles import Role
    from ottla.runtime.quorum_node import QuorumNode
    from simulator.node import SimulatedNode


class Sight:
    """What was seen last of a node's process."""

    __slots__ = (
        "end_offsets",
        "epochs",
        "high_watermark",
        "high_watermarks",
        "isrs",
        "leads",
        "logs",
        "partitions",
        "process",
        "quorum",
        "role",
        "rows",
        "state",
    )

    def __init__(self, process: int) -> None:
        self.process = process
        self.quorum: QuorumNode | None = None
        self.state: ElectionState | None = None
        self.role: Role | None = None
        self.high_watermark = -1
        self.rows: list[ReplicaRow] = []
        self.take()

    def has_changed(self) -> bool:
        """Whether something of the replicas is not as `take` has seen it. Asked after every event: lists are quick."""
        partitions = self.partitions
        return (
            [partition.high_watermark for partition in partitions] != self.high_watermarks
            or [log.log_end_offset for log in self.logs if log is not None] != self.end_offsets
            or [partition.isr for partition in partitions] != self.isrs
            or [partition.leader_epoch for partition in partitions] != self.epochs
            or [partition.leads for partition in partitions] != self.leads
            or [partition.log_or_none for partition in partitions] != self.logs
        )

    def take(self) -> None:
        """Take everything in as it is now."""
        partitions = self.partitions = [row.partition for row in self.rows]
        self.high_watermarks = [partition.high_watermark for partition in partitions]
        self.logs = [partition.log_or_none for partition in partitions]
        self.end_offsets = [log.log_end_offset for log in self.logs if log is not None]
        self.isrs = [partition.isr for partition in partitions]
        self.epochs = [partition.leader_epoch for partition in partitions]
        self.leads = [partition.leads for partition in partitions]


class ClusterState:
    """What has been seen so far of a cluster that must stay true."""

    def __init__(
        self, nodes: list[SimulatedNode], findings: Findings, is_compacted: Callable[[str], bool] = lambda topic: False
    ) -> None:
        self._nodes = nodes
        self._sights: dict[str, Sight] = {}
        self.quorum = QuorumState(nodes, findings)
        self.replicas = Replicas(nodes, findings, is_compacted)

    def look_at(self, node: SimulatedNode) -> None:
        """After an event of a node: judge what it has changed."""
        sight = self._sights.get(node.host)
        if sight is None or sight.process != node.starts:
            sight = self._sights[node.host] = Sight(node.starts)
        quorum = sight.quorum
        if quorum is None:
            quorum = sight.quorum = node.quorum
            if quorum is None:
                return
        core = quorum.core
        if core.state is not sight.state or core.role is not sight.role or core.high_watermark != sight.high_watermark:
            sight.state, sight.role, sight.high_watermark = core.state, core.role, core.high_watermark
            if node.is_alive:
                self.quorum.changed(node, quorum)
        if sight.has_changed():
            sight.take()
            self._look_at_rows(node, sight)

    def _look_at_rows(self, node: SimulatedNode, sight: Sight) -> None:
        for row in sight.rows:
            partition = row.partition
            log = partition.log_or_none
            if (
                partition.high_watermark != row.high_watermark
                or partition.leader_epoch != row.leader_epoch
                or partition.leads is not row.leads
                or partition.isr is not row.isr
                or (log is not None and log.log_end_offset != row.end_offset)
            ):
                self.replicas.changed(node, row)

    def look(self) -> None:
        """Now and then: which replicas there are, and whether their logs hold the same."""
        image = self.replicas.image()
        for node in self._nodes:
            self.look_at(node)
            sight = self._sights[node.host]
            if sight.quorum is not None and node.is_alive and node.rotten is None:
                self.quorum.look(node, sight.quorum)
            rows = self.replicas.rows_of(node, sight.rows)
            if rows is not sight.rows:
                sight.rows = rows
                self._look_at_rows(node, sight)
                sight.take()
            for row in sight.rows if node.rotten is None else ():
                self.replicas.look(node, row, image)
        self.replicas.look_at_leaders()
