"""The insides of running brokers, looked at between events: the quorum and the replicas of every partition."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.core.quorum.roles import Leader
from simulator.checkers.committed import CommittedLog
from simulator.findings import Findings

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition
    from ottla.runtime.quorum_node import QuorumNode
    from simulator.node import SimulatedNode


class ClusterState:
    """What has been seen so far of a cluster that must stay true."""

    def __init__(self, nodes: list[SimulatedNode], findings: Findings) -> None:
        self._nodes = nodes
        self._findings = findings
        self._logs: dict[str, CommittedLog] = {}
        self._leaders: dict[int, str] = {}
        self._partition_leaders: dict[tuple[str, int], str] = {}
        self._marks: dict[tuple[str, int, str], int] = {}
        """The highest value seen of what must not go back, by node, process and name."""

    def look(self) -> None:
        """Check everything that runs now."""
        leaders: dict[str, tuple[int, SimulatedNode, Partition]] = {}
        for node in self._nodes:
            quorum, partitions = node.quorum, node.partitions
            if quorum is not None:
                self._look_at_quorum(node, quorum)
            for partition in partitions if node.is_ready else ():
                self._look_at_partition(node, partition, leaders)
        for name, (_, node, partition) in leaders.items():
            log = partition.log_or_none
            if log is not None:
                self._logs[name].check_leader(node.host, log.log_end_offset, partial(_describe, partition))

    def _look_at_quorum(self, node: SimulatedNode, quorum: QuorumNode) -> None:
        core, log = quorum.core, quorum.log.log
        self._never_back(node, "quorum epoch", core.epoch)
        self._never_back(node, "quorum high watermark", quorum.high_watermark)
        if isinstance(core.role, Leader):
            known = self._leaders.setdefault(core.epoch, node.host)
            if known != node.host:
                self._findings.add("one leader an epoch", f"{known} and {node.host} lead the quorum in {core.epoch}")
        committed = self._committed("__cluster_metadata")
        committed.look(node.host, node.starts, log, min(quorum.high_watermark, log.log_end_offset))

    def _look_at_partition(
        self, node: SimulatedNode, partition: Partition, leaders: dict[str, tuple[int, SimulatedNode, Partition]]
    ) -> None:
        log = partition.log_or_none
        if log is None or partition.gone:
            return
        name = f"{partition.topic}-{partition.index}"
        if partition.high_watermark > log.log_end_offset:
            text = f"{node.host}: {name}: high watermark {partition.high_watermark}, end {log.log_end_offset}"
            self._findings.add("the high watermark lies within the log", text)
        committed = self._committed(name)
        if partition.leads or committed.end_offset:
            committed.look(node.host, node.starts, log, min(partition.high_watermark, log.log_end_offset))
        if partition.leads:
            key = name, partition.leader_epoch
            known = self._partition_leaders.setdefault(key, node.host)
            if known != node.host:
                self._findings.add("one leader an epoch", f"{known} and {node.host} lead {name} in {key[1]}")
            best = leaders.get(name)
            if best is None or best[0] < partition.leader_epoch:
                leaders[name] = partition.leader_epoch, node, partition

    def _committed(self, name: str) -> CommittedLog:
        found = self._logs.get(name)
        if found is None:
            found = self._logs[name] = CommittedLog(name, self._findings)
        return found

    def _never_back(self, node: SimulatedNode, what: str, value: int) -> None:
        key = node.host, node.starts, what
        before = self._marks.get(key, value)
        if value < before:
            self._findings.add(f"the {what} never goes back", f"{node.host}: from {before} to {value}")
        self._marks[key] = max(before, value)


def _describe(partition: Partition) -> str:
    return f"epoch {partition.leader_epoch}, isr {partition.isr}, high watermark {partition.high_watermark}"
