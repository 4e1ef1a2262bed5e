"""The replicas of partitions: one leader an epoch, who holds what is committed, and so does whoever is in sync.

Theory of operation. What a leader has below its high watermark is committed, and `committed_end` keeps how far that has
ever been. Whoever the active controller counts as in sync, or as eligible to lead, may lead next, so it must have all
of it. Brokers whose registration is not of their present life are not asked: the controller has not heard yet what
they have lost.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from simulator.active_controller import ActiveController
from simulator.checkers.committed import CommittedLog
from simulator.findings import Findings

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage, PartitionImage
    from ottla.runtime.partition import Partition
    from simulator.node import SimulatedNode


class ReplicaRow:
    """A replica, and what was seen of it last."""

    __slots__ = ("end_offset", "high_watermark", "image", "isr", "leader_epoch", "leads", "looked", "name", "partition")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.name = f"{partition.topic}-{partition.index}"
        self.high_watermark = -1
        self.leader_epoch = -1
        self.leads = False
        self.isr: tuple[int, ...] = ()
        self.end_offset = -1
        self.looked: tuple[object, ...] = ()
        self.image: MetadataImage | None = None
        """At the last look: all that it depends on. Where nothing of it is another there is nothing to be seen."""


class Replicas:
    """What has been seen of all partitions."""

    def __init__(self, nodes: list[SimulatedNode], findings: Findings, is_compacted: Callable[[str], bool]) -> None:
        self._nodes = nodes
        self._controller = ActiveController(nodes)
        self._is_compacted = is_compacted
        self._findings = findings
        self._logs: dict[str, CommittedLog] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self._newest: dict[str, tuple[int, int, SimulatedNode, Partition]] = {}
        """The leader of the newest epoch: the epoch, the number of its process, and who it is."""
        self.truncations = 0

    # -- after every event

    def changed(self, node: SimulatedNode, row: ReplicaRow) -> None:
        """A replica's role, high watermark or end is another."""
        partition = row.partition
        log = partition.log_or_none
        end_before = row.end_offset
        high_watermark_before = row.high_watermark
        row.high_watermark, row.leads = partition.high_watermark, partition.leads
        is_other_isr = partition.isr != row.isr
        row.leader_epoch, row.isr = partition.leader_epoch, partition.isr
        if log is None or partition.gone or not node.is_ready:
            return
        row.end_offset = log.log_end_offset
        if partition.high_watermark > log.log_end_offset:
            text = f"{node.host}: {row.name}: high watermark {partition.high_watermark}, end {log.log_end_offset}"
            self._findings.add("the high watermark lies within the log", text)
        if partition.leads:
            self._leader_changed(node, row, is_further=partition.high_watermark > high_watermark_before)
            if is_other_isr:
                self._check_in_sync(row.name, partition)
        if log.log_end_offset < end_before:
            self.truncations += 1
            self._check_in_sync(row.name, partition, only=node)

    def _leader_changed(self, node: SimulatedNode, row: ReplicaRow, *, is_further: bool) -> None:
        partition, name = row.partition, row.name
        known = self._leaders.setdefault((name, partition.leader_epoch), node.host)
        if known != node.host:
            text = f"{known} and {node.host} lead {name} in {partition.leader_epoch}"
            self._findings.add("one leader an epoch", text)
        newest = self._newest.get(name)
        life = partition.leader_epoch, node.starts
        if newest is None or (newest[:2] != life and newest[0] <= life[0]):
            self._newest[name] = *life, node, partition
            self._check_leader(name)
        if is_further and partition.replication is not None:
            committed = self._committed(name)
            committed.reach(partition.high_watermark)
            self._check_in_sync(name, partition)

    def _check_in_sync(
        self,
        name: str,
        partition: Partition,
        only: SimulatedNode | None = None,
        image: MetadataImage | None = None,
    ) -> None:
        image = image or self.image()
        topic = None if image is None else image.topics.get(partition.topic)
        if image is None or topic is None or partition.index >= len(topic.partitions):
            return
        state = topic.partitions[partition.index]
        for other in self._nodes if only is None else (only,):
            if other.node_id in state.isr or other.node_id in state.elr:
                self._check_replica(name, other, image, state, partition)

    def _check_replica(
        self, name: str, node: SimulatedNode, image: MetadataImage, state: PartitionImage, of: Partition
    ) -> None:
        services, registered = node.services, image.brokers.get(node.node_id)
        if services is None or registered is None or not node.is_ready or registered.fenced:
            return
        if node.broker_epoch != registered.epoch:
            return
        hosted = services.partitions.find(of.topic_id)
        replica = None if hosted is None or of.index >= len(hosted.partitions) else hosted.partitions[of.index]
        log = None if replica is None else replica.log_or_none
        end = self._committed(name).reached
        if log is not None and log.log_end_offset < end:
            text = f"{name}: {node.host} ends at {log.log_end_offset}, committed is {end}, in sync are {state.isr}"
            self._findings.add("whoever is in sync holds everything that is committed", text)

    def image(self) -> MetadataImage | None:
        """What the active controller knows."""
        node = self._controller.find()
        services = None if node is None else node.services
        return None if services is None else services.image

    def _check_leader(self, name: str) -> None:
        _, process, node, partition = self._newest[name]
        log = partition.log_or_none
        if log is not None and partition.leads and node.is_ready and node.starts == process:
            self._committed(name).check_leader(node.host, log.log_end_offset, partial(_describe, partition))

    # -- now and then

    def rows_of(self, node: SimulatedNode, before: list[ReplicaRow]) -> list[ReplicaRow]:
        """The replicas that a node hosts now."""
        partitions = node.partitions if node.is_ready else []
        if [row.partition for row in before] == partitions:
            return before
        known = {id(row.partition): row for row in before}
        return [known.get(id(partition)) or ReplicaRow(partition) for partition in partitions]

    def look(self, node: SimulatedNode, row: ReplicaRow, image: MetadataImage | None) -> None:
        """Compare what a replica holds below its high watermark, and with what `image` says that it must hold."""
        partition = row.partition
        log = partition.log_or_none
        if log is None or partition.gone:
            return
        committed = self._committed(row.name)
        now = (
            partition.high_watermark,
            log.log_end_offset,
            log.log_start_offset,
            log.producers.first_unstable_offset,
            partition.leads,
            node.broker_epoch,
            committed.end_offset,
            committed.reached,
        )
        if row.image is image and row.looked == now:
            return
        row.image, row.looked = image, now
        if partition.leads or committed.end_offset:
            end_offset = min(partition.high_watermark, log.log_end_offset)
            if not committed.look(node.host, node.starts, log, end_offset):
                row.looked = ()
        if image is not None:
            self._check_in_sync(row.name, partition, only=node, image=image)
        if partition.leads:
            unstable = log.producers.first_unstable_offset
            stable = partition.high_watermark if unstable is None else min(unstable, partition.high_watermark)
            committed.check_stable(node.host, stable)

    def look_at_leaders(self) -> None:
        for name in self._newest:
            self._check_leader(name)

    def _committed(self, name: str) -> CommittedLog:
        found = self._logs.get(name)
        if found is None:
            is_compacted = self._is_compacted(name.rpartition("-")[0])
            found = self._logs[name] = CommittedLog(name, self._findings, is_compacted=is_compacted)
        return found


def _describe(partition: Partition) -> str:
    return f"epoch {partition.leader_epoch}, isr {partition.isr}, high watermark {partition.high_watermark}"
