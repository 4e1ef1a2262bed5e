"""One run: a cluster, its clients, its faults; then everything heals, and what is left is judged.

Phases. Setup: nodes start and topics are made, without faults. Safety: the workload runs while faults happen. Liveness:
faults end, dead nodes come back, and within a bound every node must be ready and every send must have an outcome. Then
the workload ends, fresh readers read everything, and the checkers compare.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from simulator import broker_logs
from simulator.active_controller import ActiveController
from simulator.checkers.anomalies import check_history
from simulator.checkers.cluster_state import ClusterState
from simulator.checkers.groups import check_groups
from simulator.checkers.standing import changes, standing
from simulator.clients.admin import Admin
from simulator.clients.cluster import Address, ClusterClient
from simulator.clients.final_read import FinalRead
from simulator.clients.group_probe import GroupProbe
from simulator.disk import ProcessKilled
from simulator.faults import Fault, FaultInjector
from simulator.findings import Finding
from simulator.history import History, Place
from simulator.node import SimulatedNode
from simulator.options import Options
from simulator.room import Room
from simulator.timeline import SECOND_US
from simulator.workload import Workload

SETUP_SECONDS_MAX: Final = 60
LIVENESS_SECONDS_MAX: Final = 90
FINAL_READ_SECONDS_MAX: Final = 60
CATCH_UP_SECONDS_MAX: Final = 60
SETTLE_SECONDS: Final = 6
QUIET_SECONDS: Final = 6
STEP_US: Final = SECOND_US // 3
COLLECT_US: Final = 120 * SECOND_US


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of a run."""

    seed: int
    options: Options
    faults: list[Fault]
    findings: list[Finding]
    digest: str
    events: int
    simulated_us: int
    acknowledged: int
    counts: dict[str, int]
    """What happened, and how often."""


class ClusterRun:
    """Built from a seed's options and plan; `run` once."""

    def __init__(self, seed: int, options: Options, faults: list[Fault], *, traced: bool = False) -> None:
        self.seed = seed
        self.options = options
        self.faults = faults
        self.room = Room(seed, traced=traced)
        self.history = History(self.room.timeline, is_compacted=options.is_compacted)
        properties = options.broker_properties()
        self.nodes = [SimulatedNode(self.room, number + 1, properties) for number in range(options.nodes)]
        if options.spare_broker:
            self.nodes.append(SimulatedNode(self.room, options.machines, {**properties, "process.roles": "broker"}))
        self.clients: list[ClusterClient] = []
        self.places: list[Place] = []
        self.workload = Workload(options, self.history, self.client)
        self.is_healed = False
        self._controller = ActiveController(self.nodes)
        self._injector = FaultInjector(self)
        self._state = ClusterState(self.nodes, self.room.findings, options.is_compacted)
        self.room.has_bad_disk = self._has_bad_disk
        self.room.rot_seen = self.rot_seen
        for node in self.nodes:
            node.on_event = self._state.look_at
        self._collected_us = 0

    def run(self) -> RunResult:
        enabled, hook = gc.isenabled(), sys.unraisablehook
        gc.disable()
        sys.unraisablehook = _forget_the_dead
        # What is there before the run outlives it: a collection in the middle of it need not look at that.
        gc.collect()
        gc.freeze()
        try:
            self._run()
        except Exception as error:
            self.room.findings.add("a run comes to its end", broker_logs.describe(error))
        finally:
            sys.unraisablehook = hook
            if enabled:
                gc.enable()
        timeline = self.room.timeline
        return RunResult(
            self.seed,
            self.options,
            self.faults,
            self.room.findings.found,
            timeline.digest(),
            timeline.events,
            timeline.now_us,
            self.history.acknowledged,
            dict(sorted(self.room.counts.items())),
        )

    def _run(self) -> None:
        timeline = self.room.timeline
        for node in self.nodes:
            node.start()
        if not self._setup():
            self.room.findings.add("a new cluster serves", f"no topics within {SETUP_SECONDS_MAX} s")
            return
        spare = self.nodes[-1] if self.options.spare_broker else None
        self.workload.start(self.places, spare, self.may_lose_voter)
        start_us = timeline.now_us
        self._injector.schedule(self.faults, start_us)
        self._advance(start_us + self.options.seconds * SECOND_US)
        self.is_healed = True
        self._injector.heal()
        if not self._wait(self._serves, LIVENESS_SECONDS_MAX):
            self.room.findings.add("a healed cluster serves again", self._who_waits())
            return
        self._finish()

    # -- phases

    def _setup(self) -> bool:
        admin = Admin(self.client("admin"))
        topics = self.options.topics()
        for name, partitions in topics.items():
            self.places += [Place(name, number) for number in range(partitions)]
            configs = self.options.topic_configs(name)
            admin.cluster.loop.start(admin.create_topic(name, partitions, self.options.replicas, configs))
        return self._wait(lambda: len(admin.created) == len(topics), SETUP_SECONDS_MAX)

    def _serves(self) -> bool:
        """Whether all nodes are in sync and everything sent has an outcome; from then on nothing new is sent."""
        self.workload.stop_writing()
        in_sync = all(node.is_ready and self._is_in_sync(node) for node in self.nodes)
        return in_sync and not self.workload.waiting()

    def _who_waits(self) -> str:
        nodes = [node.host for node in self.nodes if not node.is_ready]
        late = [node.host for node in self.nodes if node.is_ready and not self._is_in_sync(node)]
        waiting = ", ".join(self.workload.waiting()) or "nobody"
        return (
            f"after {LIVENESS_SECONDS_MAX} s not ready: {nodes}; not in sync, or no voter: {late}; waiting: {waiting}"
        )

    def _finish(self) -> None:
        reads = [
            FinalRead(self.client(f"final-{committed}"), self.history, self.places, committed_only=committed)
            for committed in (False, True)
        ]
        for read in reads:
            read.cluster.loop.start(read.run())
        findings = self.room.findings
        if not self._wait(lambda: all(read.is_done for read in reads), FINAL_READ_SECONDS_MAX):
            findings.add("everything can be read", f"not within {FINAL_READ_SECONDS_MAX} s")
            return
        ends = reads[0].ends
        if not self._wait(lambda: not self.workload.behind(ends), CATCH_UP_SECONDS_MAX):
            findings.add("every reader reaches the end", ", ".join(self.workload.behind(ends)))
        self.workload.stop()
        check_history(self.history, findings)
        check_groups(self.history, findings)
        self._check_quiet()
        if self.workload.groups:
            self._check_replay()

    def _check_quiet(self) -> None:
        """Left alone, a healed cluster stays as it is. Commits that are under way arrive meanwhile, or are lost."""
        self._advance(self.room.timeline.now_us + SETTLE_SECONDS * SECOND_US)
        before = standing(self._controller, self.nodes)
        self._advance(self.room.timeline.now_us + QUIET_SECONDS * SECOND_US)
        changed = changes(before, standing(self._controller, self.nodes))
        if changed:
            self.room.findings.add("a healed cluster stays as it is", changed)

    def _check_replay(self) -> None:
        """What a coordinator knows is what another one reads from its log: restart everything, and ask again."""
        groups = self.workload.groups
        before = [self._ask_for_offsets("before", group) for group in groups]
        for node in self.nodes:
            node.kill()
        self._wait(lambda: all(node.is_ready for node in self.nodes), LIVENESS_SECONDS_MAX)
        after = [self._ask_for_offsets("after", group) for group in groups]
        if None in before or before != after:
            text = f"offsets of {groups}: {before}, and after a restart of all nodes {after}"
            self.room.findings.add("live state equals replay", text)

    def _ask_for_offsets(self, name: str, group: str) -> dict[str, int] | None:
        probe = GroupProbe(self.client(f"probe-{name}-{group}"), group)
        probe.cluster.loop.start(probe.run())
        self._wait(lambda: probe.answer is not None, LIVENESS_SECONDS_MAX)
        return probe.answer

    # -- what it is made of

    def hosts(self) -> list[str]:
        return [node.host for node in self.nodes] + [client.name for client in self.clients]

    def client(self, name: str) -> ClusterClient:
        bootstrap: list[Address] = [(node.host, node.port) for node in self.nodes]
        client = ClusterClient(self.room, name, bootstrap)
        self.clients.append(client)
        return client

    # -- time

    def _wait(self, condition: Callable[[], bool], seconds_max: int) -> bool:
        """Let time pass until the condition holds; False if it does not within the bound."""
        end_us = self.room.timeline.now_us + seconds_max * SECOND_US
        while not condition():
            if self.room.timeline.now_us >= end_us:
                return False
            self._advance(self.room.timeline.now_us + STEP_US)
        return True

    def _advance(self, until_us: int) -> None:
        timeline = self.room.timeline
        while timeline.now_us < until_us:
            timeline.run(min(timeline.now_us + STEP_US, until_us))
            self._state.look()
            self._look_after_nodes()
            if timeline.now_us - self._collected_us >= COLLECT_US:
                self._collected_us = timeline.now_us
                gc.collect()

    def _look_after_nodes(self) -> None:
        """What a service manager does: a process that ended by itself is started again, in the end every one."""
        for node in self.nodes:
            if node.rot_is_known or (self.is_healed and node.rotten is not None):
                self.room.counts["done: rotten disk replaced"] += 1
                node.kill()
                node.replace_disk()
                node.start()
            if node.ended_by_itself or (self.is_healed and not node.is_alive):
                node.start()
            is_behind = node.may_lack_data or node.is_unclean
            is_sound = node.rotten is None and not node.loses_cache
            if is_behind and is_sound and node.is_ready and self._is_in_sync(node):
                node.may_lack_data = node.disk_lost = node.is_unclean = False

    def _is_in_sync(self, node: SimulatedNode) -> bool:
        """Whether the controller counts it as in sync wherever it has a replica, and as a voter if it is to be one."""
        controller = self._controller.find()
        if controller is None or not controller.is_ready or controller.services is None or controller.quorum is None:
            return False
        own = None if node.quorum is None else node.quorum.core.key
        votes = node.node_id <= self.options.nodes
        if votes and own is not None and not controller.quorum.core.voters.includes(own):
            return False
        return all(
            node.node_id in partition.isr
            for topic in controller.services.image.topics.values()
            for partition in topic.partitions
            if node.node_id in partition.replicas
        )

    def may_lose_disk(self, node: SimulatedNode) -> bool:
        """Whether all other nodes run, vote and have everything, so that a disk may lose all of it."""
        operator = self.workload.operator
        if self.options.replicas < 3 or not self._is_in_sync(node) or (operator is not None and not operator.is_idle):
            return False
        others = [other for other in self.nodes if other is not node]
        return all(other.is_ready and not other.may_lack_data and self._is_in_sync(other) for other in others)

    def may_lose_voter(self) -> bool:
        """Whether no disk is lost whose node counts as a voter still: with another one less nobody could lead."""
        return not any(node.disk_lost for node in self.nodes)

    def rot_seen(self, text: str) -> bool:
        """A client has found something corrupt: whether a disk was to blame, which is replaced then."""
        rotten = [node for node in self.nodes if node.rotten is not None]
        for node in rotten:
            self.room.note(node.host, "rot seen", text)
            self.room.counts["done: rot seen by a client"] += 1
            node.rot_noticed()
        return bool(rotten)

    def _has_bad_disk(self, host: str) -> bool:
        return any(node.host == host and (node.mount.faults.failed or node.rotten) for node in self.nodes)

    def may_be_killed(self, node: SimulatedNode) -> bool:
        """Whether, where a disk has forgotten something, other nodes are left that have it all and are believed."""
        lacking = any(other.may_lack_data for other in self.nodes if other is not node)
        return self.options.flush_each or not lacking or self._has_good_copies(node)

    def may_lose_data(self, node: SimulatedNode) -> bool:
        """Whether each committed record is synced, or has a good copy elsewhere, where the cluster may look for it.

        Of two that were in sync and both ended where they stood neither counts: the last leader is taken at its word.
        """
        if self.options.flush_each:
            return True
        behind = any(other.may_lack_data or other.is_unclean for other in self.nodes if other is not node)
        return self.options.replicas >= 3 and (not behind or self._has_good_copies(node))

    def _has_good_copies(self, without: SimulatedNode) -> bool:
        """Whether each partition has another replica that runs, is in sync, has lost nothing and is believed."""
        controller = self._controller.find()
        if controller is None or controller.services is None:
            return False
        good = {
            node.node_id
            for node in self.nodes
            if node is not without and node.is_ready and not (node.may_lack_data or node.is_unclean)
        }
        topics = controller.services.image.topics.values()
        return all(not good.isdisjoint(partition.isr) for topic in topics for partition in topic.partitions)


def _forget_the_dead(unraisable: sys.UnraisableHookArgs) -> None:
    """What is left of killed processes fails when it is cleared away, which is as it should be."""
    if not isinstance(unraisable.exc_value, ProcessKilled | RuntimeError):
        sys.__unraisablehook__(unraisable)
