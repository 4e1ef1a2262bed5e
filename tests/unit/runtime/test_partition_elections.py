"""Replicas under elections, lagging metadata and changing ISRs: what was acknowledged is in every later leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.model.configs.resolve import TopicConfig
from ottla.wire.batch import iterate, read_header
from tests.unit.log.support import batch_of
from tests.unit.runtime.replicas import Cluster

NODES = st.sampled_from([1, 2, 3])


class Elections(RuleBasedStateMachine):
    """A controller that elects in-sync replicas, and brokers that hear of it when they hear of it."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.cluster = self.runner.run(self._cluster())
        self.written = 0
        self.acknowledged: dict[int, bytes] = {}
        """By offset: what a leader has said to be committed."""

    async def _cluster(self) -> Cluster:
        return Cluster(3, TopicConfig(min_insync_replicas=2))

    def teardown(self) -> None:
        self.runner.close()

    def on_loop(self, work: Callable[[], object]) -> None:
        async def run() -> None:
            work()

        self.runner.run(run())

    @rule(node=NODES, count=st.integers(1, 3))
    def produce(self, node: int, count: int) -> None:
        """Whoever believes to lead appends; it may be wrong."""
        partition = self.cluster.partition(node)
        for _ in range(count if partition.leads else 0):
            self.written += 1
            batch = batch_of(1, value=b"%d" % self.written)
            self.on_loop(lambda batch=batch: partition.append(memoryview(batch), read_header(batch), 0))  # type: ignore[misc]

    @rule(node=NODES, times=st.integers(1, 3))
    def replicate(self, node: int, times: int) -> None:
        for _ in range(times):
            if not self.cluster.partition(node).leads:
                self.on_loop(lambda: self.cluster.replicate(node))
                self.note_committed()

    @rule(node=NODES)
    def elect(self, node: int) -> None:
        if node in self.cluster.state.isr:
            self.cluster.change(leader=node)

    @rule(node=NODES)
    def hear(self, node: int) -> None:
        self.on_loop(lambda: self.cluster.publish(node))
        self.note_committed()

    @rule(ms=st.sampled_from([100, 40_000]))
    def wait(self, ms: int) -> None:
        for replica in self.cluster.replicas.values():
            replica.clock.ms += ms

    @rule(node=NODES, is_heard=st.booleans())
    def ask_for_another_isr(self, node: int, is_heard: bool) -> None:
        """The controller grants it to the leader of its own epoch, which hears of it at once, or later."""
        partition, state = self.cluster.partition(node), self.cluster.state
        if partition.replication is None:
            return
        wanted = partition.replication.proposal(partition.log.log_end_offset, partition.neighbours.now_ms())
        if wanted is None:
            return
        partition.replication.asked(wanted)
        is_current = (node, partition.leader_epoch, partition.partition_epoch) == (
            state.leader,
            state.leader_epoch,
            state.partition_epoch,
        )
        if is_current:
            self.cluster.change(isr=wanted)
            if is_heard:
                self.on_loop(lambda: self.cluster.publish(node))
        self.note_committed()

    def note_committed(self) -> None:
        for node in (1, 2, 3):
            partition = self.cluster.partition(node)
            if partition.leads:
                for offset, value in records(self.cluster, node):
                    if offset < partition.high_watermark:
                        assert self.acknowledged.setdefault(offset, value) == value

    @invariant()
    def whoever_may_lead_has_everything_acknowledged(self) -> None:
        state = self.cluster.state
        for node in {state.leader, *state.isr}:
            held = dict(records(self.cluster, node))
            assert {offset: held.get(offset) for offset in self.acknowledged} == self.acknowledged

    @invariant()
    def nobody_takes_for_committed_what_is_not(self) -> None:
        for node in (1, 2, 3):
            high_watermark = self.cluster.partition(node).high_watermark
            for offset, value in records(self.cluster, node):
                if offset < high_watermark:
                    assert self.acknowledged[offset] == value


def records(cluster: Cluster, node: int) -> list[tuple[int, bytes]]:
    """The batches of a log by offset, without the leader epoch, which only some of the copies differ in."""
    data = cluster.contents(node)
    return [
        (header.base_offset, bytes(data[position + 17 : position + header.size])) for position, header in iterate(data)
    ]


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
