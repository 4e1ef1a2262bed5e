"""A quorum in memory: cores, logs that lose what was not synced, a network that loses and delays. Seeded; no real time.

What the runtime's driver does with files and sockets is done here with lists and a heap of events. After each event
the invariants of the quorum are checked (`invariants`).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from uuid import UUID

from ottla.core.quorum.core import QuorumCore
from ottla.core.quorum.effects import (
    Append,
    BeginEpoch,
    BeginEpochRequest,
    Effect,
    ElectionState,
    EndEpochRequest,
    FetchAnswer,
    FetchRequest,
    FetchSnapshot,
    OffsetAndEpoch,
    Position,
    QuorumSettings,
    Send,
    StoreState,
    Truncate,
    VoteRequest,
)
from ottla.core.quorum.roles import Leader
from ottla.core.quorum.voters import ReplicaKey, Voter, VoterEndpoint, VoterHistory, VoterSet
from ottla.model.errors import ApiError, ErrorCode

FETCH_WAIT_MS = 500
ENTRIES_PER_FETCH = 5


class Entry(NamedTuple):
    """One entry of the log; a VoterSet as value is a change of voters."""

    epoch: int
    value: Any


class Snapshot(NamedTuple):
    """What stands for all entries below its end."""

    end: OffsetAndEpoch
    voters: VoterSet | None
    entries: tuple[Entry, ...]


@dataclass
class MemoryLog:
    """The log as the core sees it; `synced` entries and the snapshot would survive a crash."""

    entries: list[Entry] = field(default_factory=list)
    start: int = 0
    synced: int = 0
    snapshot: Snapshot | None = None

    @property
    def start_offset(self) -> int:
        return self.start

    @property
    def end_offset(self) -> int:
        return self.start + len(self.entries)

    @property
    def synced_offset(self) -> int:
        return self.synced

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return self.snapshot.end.epoch if self.snapshot else 0

    @property
    def start_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshot.end if self.snapshot is not None and self.start else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return self.snapshot.end if self.snapshot else None

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        found = OffsetAndEpoch(self.start, self.snapshot.end.epoch if self.snapshot and self.start else 0)
        for offset, entry in enumerate(self.entries, self.start):
            if entry.epoch <= epoch:
                found = OffsetAndEpoch(offset + 1, entry.epoch)
        return found

    def whole(self) -> list[Entry]:
        """All entries from offset 0 on, with those that the snapshot stands for."""
        return [*(self.snapshot.entries[: self.start] if self.snapshot else ()), *self.entries]


@dataclass
class Disk:
    """What survives a crash, together with the synced part of the log."""

    directory_id: UUID
    state: ElectionState = field(default_factory=ElectionState)
    log: MemoryLog = field(default_factory=MemoryLog)


class Node:
    """One replica with its disk; `core` is None while it is down."""

    def __init__(self, cluster: Cluster, node_id: int, voters: VoterSet, *, may_vote: bool = True) -> None:
        self.cluster = cluster
        self.id = node_id
        self.configured = voters
        self.may_vote = may_vote
        self.disk = Disk(cluster.new_uuid())
        self.core: QuorumCore | None = None
        self.life = 0
        self.stored = 0
        self.held: list[tuple[int, Callable[[], None]]] = []
        self.waiting: list[tuple[FetchRequest, Callable[[FetchAnswer], None], int]] = []
        self.wake_ms: int | None = None
        self.owed: dict[tuple[int, int, int], Callable[[], None]] = {}
        """What breaks off when this node dies: requests that it has not answered."""

    @property
    def log(self) -> MemoryLog:
        return self.disk.log

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.disk.directory_id)

    @property
    def is_leader(self) -> bool:
        return self.core is not None and isinstance(self.core.role, Leader)

    # -- life and death

    def start(self) -> None:
        self.life += 1
        self.stored = 0
        self.held.clear()
        self.waiting.clear()
        self.wake_ms = None
        history = VoterHistory(self.configured)
        if self.log.snapshot is not None:
            history.restart(self.log.snapshot.voters)
        for offset, entry in enumerate(self.log.entries, self.log.start):
            if isinstance(entry.value, VoterSet) and (not self.log.snapshot or offset >= self.log.snapshot.end.offset):
                history.add(offset, entry.value)
        self.log.synced = self.log.end_offset
        cluster = self.cluster
        settings = QuorumSettings(
            key=self.key, endpoints=endpoints(self.id), may_vote=self.may_vote, bootstrap=cluster.bootstrap
        )
        random_below = cluster.rng.randrange
        self.core = QuorumCore(settings, self.log, history, self.disk.state, lambda n: random_below(n), cluster.now_ms)
        self.pump()

    def crash(self) -> None:
        """Whatever was not synced is gone, or some of its beginning is not."""
        self.core = None
        self.life += 1
        kept = self.cluster.rng.randint(self.log.synced, self.log.end_offset)
        del self.log.entries[kept - self.log.start :]
        owed, self.owed = self.owed, {}
        for broken in owed.values():
            self.cluster.schedule(1, broken)

    def wipe(self) -> None:
        """The disk is replaced by an empty one; only while the node is down."""
        self.cluster.invariants.disk_lost(self)
        self.disk = Disk(self.cluster.new_uuid())

    # -- driving the core

    def at(self, delay_ms: int, action: Callable[[QuorumCore], None]) -> None:
        """Do something later, unless the node has died by then."""
        life = self.life

        def act() -> None:
            if self.life == life and self.core is not None:
                action(self.core)
                self.pump()

        self.cluster.schedule(delay_ms, act)

    def pump(self) -> None:
        """Carry out what the core wants, answer who waits, set the next timer."""
        core = self.core
        if core is None:
            return
        while effects := core.drain():
            for effect in effects:
                self.carry_out(core, effect)
        waiting, self.waiting = self.waiting, []
        for request, answer, deadline_ms in waiting:
            self.serve_waiting(request, answer, deadline_ms)
        due = core.next_deadline_ms(self.cluster.now_ms)
        if due is not None and (self.wake_ms is None or due < self.wake_ms or self.wake_ms <= self.cluster.now_ms):
            self.wake_ms = due
            self.at(max(due - self.cluster.now_ms, 0), lambda core: core.tick(self.cluster.now_ms))

    def carry_out(self, core: QuorumCore, effect: Effect) -> None:
        disk_ms = self.cluster.rng.randint(0, self.cluster.disk_ms_max)
        if isinstance(effect, StoreState):
            self.at(disk_ms, lambda core: self.store(core, effect))
        elif isinstance(effect, Send):
            self.when_stored(lambda: self.cluster.send(self, effect))
        elif isinstance(effect, Append):
            if core.is_following(effect.epoch):
                for entry in effect.records or ():
                    self.append(core, entry)
            self.sync_later(disk_ms)
        elif isinstance(effect, Truncate):
            self.at(disk_ms, lambda core: self.truncate(core, effect))
        elif isinstance(effect, FetchSnapshot):
            self.when_stored(lambda: self.cluster.send_snapshot(self, effect))
        elif isinstance(effect, BeginEpoch):
            self.cluster.invariants.leader_elected(self, effect.epoch)
            self.append(core, Entry(effect.epoch, ("leader", self.id)))
            if effect.record_voters:
                self.append(core, Entry(effect.epoch, effect.voters))
            self.sync_later(disk_ms)
        elif self.is_leader and core.epoch == effect.epoch:
            self.append(core, Entry(effect.epoch, effect.voters))
            self.sync_later(disk_ms)

    def append(self, core: QuorumCore, entry: Entry) -> None:
        self.log.entries.append(entry)
        if isinstance(entry.value, VoterSet):
            core.voters_appended(self.log.end_offset - 1, entry.value, self.cluster.now_ms)

    def sync_later(self, disk_ms: int) -> None:
        log, end, last = self.log, self.log.end_offset, self.log.last_epoch

        def sync(core: QuorumCore) -> None:
            if self.log is log and log.end_offset >= end and (end == log.start or log.whole()[end - 1].epoch == last):
                log.synced = max(log.synced, end)
            core.synced(self.cluster.now_ms)

        self.at(disk_ms, sync)

    def truncate(self, core: QuorumCore, effect: Truncate) -> None:
        if core.is_following(effect.epoch):
            del self.log.entries[max(effect.offset - self.log.start, 0) :]
            self.log.synced = min(self.log.synced, self.log.end_offset)
        core.truncated(self.cluster.now_ms)

    def store(self, core: QuorumCore, effect: StoreState) -> None:
        if effect.version > self.stored:
            self.stored = effect.version
            self.disk.state = effect.state
        core.state_stored(effect.version, self.cluster.now_ms)
        ready = [action for version, action in self.held if version <= self.stored]
        self.held = [held for held in self.held if held[0] > self.stored]
        for action in ready:
            action()

    def when_stored(self, action: Callable[[], None]) -> None:
        assert self.core is not None
        if self.core.state_version <= self.stored:
            action()
        else:
            self.held.append((self.core.state_version, action))

    # -- serving others

    def serve(self, request: Any, answer: Callable[[Any], None]) -> None:
        core, now_ms = self.core, self.cluster.now_ms
        if core is None:
            return
        if isinstance(request, FetchRequest):
            self.serve_fetch(request, lambda found: self.when_stored(lambda: answer(found)))
        else:
            found: Any
            if isinstance(request, VoteRequest):
                found = core.vote_requested(request, now_ms)
                answer = self.cluster.invariants.watched(self, request, answer)
            elif isinstance(request, BeginEpochRequest):
                found = core.begin_epoch_requested(request, now_ms)
            else:
                assert isinstance(request, EndEpochRequest)
                found = core.end_epoch_requested(request, now_ms)
            self.when_stored(lambda: answer(found))
        self.pump()

    def serve_fetch(self, request: FetchRequest, answer: Callable[[FetchAnswer], None]) -> None:
        assert self.core is not None
        found = self.core.fetch_requested(request, self.cluster.now_ms)
        if found.error is ErrorCode.NONE and found.diverging is None and found.snapshot is None:
            self.waiting.append((request, answer, self.cluster.now_ms + FETCH_WAIT_MS))
            self.cluster.schedule(FETCH_WAIT_MS, self.pump)
        else:
            answer(found)

    def serve_waiting(self, request: FetchRequest, answer: Callable[[FetchAnswer], None], deadline_ms: int) -> None:
        """Answer a fetch when there is something new, or when it has waited long enough."""
        assert self.core is not None
        if not self.is_leader or self.core.epoch != request.epoch:
            answer(self.core.fetch_requested(request, self.cluster.now_ms))
            return
        at = request.fetch_offset - self.log.start
        records = self.log.entries[at : at + ENTRIES_PER_FETCH] if at >= 0 else []
        if records or self.core.high_watermark > request.high_watermark or self.cluster.now_ms >= deadline_ms:
            core = self.core
            answer(FetchAnswer(ErrorCode.NONE, core.epoch, core.leader_id, core.high_watermark, records=records))
        else:
            self.waiting.append((request, answer, deadline_ms))

    def take_snapshot(self) -> None:
        """Replace the committed beginning of the log."""
        assert self.core is not None
        end = min(self.core.high_watermark, self.log.synced)
        if end <= self.log.start:
            return
        whole = self.log.whole()
        voters = self.core.history.at(end)
        self.log.snapshot = Snapshot(OffsetAndEpoch(end, whole[end - 1].epoch), voters, tuple(whole[:end]))
        self.log.entries = whole[end:]
        self.log.start = end

    def install(self, core: QuorumCore, number: int, epoch: int, snapshot: Snapshot) -> None:
        if not core.is_following(epoch):
            return
        self.log.snapshot = snapshot
        self.log.entries = []
        self.log.start = self.log.synced = snapshot.end.offset
        core.history.restart(snapshot.voters)
        core.snapshot_installed(number, self.cluster.now_ms)


class Cluster:
    """Nodes, a network between them and a clock that jumps from event to event."""

    def __init__(self, seed: int, voters: int = 3, *, start: bool = True) -> None:
        from tests.unit.core.quorum.invariants import Invariants

        self.rng = random.Random(seed)
        self.now_ms = 0
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.sequence = 0
        self.loss = 0.0
        self.delay_ms_max = 3
        self.disk_ms_max = 3
        self.cut: set[tuple[int, int]] = set()
        self.bootstrap = tuple(Position(-1, f"node-{node_id}", node_id) for node_id in range(1, voters + 1))
        self.invariants = Invariants(self)
        configured = VoterSet.of([Voter(node_id, endpoints=endpoints(node_id)) for node_id in range(1, voters + 1)])
        self.nodes = {node_id: Node(self, node_id, configured) for node_id in range(1, voters + 1)}
        self.written = 0
        if voters == 1:
            self.nodes[1].configured = VoterSet((replace(configured.voters[0], directory_id=self.nodes[1].key[1]),))
        if start:
            for node in self.nodes.values():
                node.start()

    def new_uuid(self) -> UUID:
        return UUID(int=self.rng.getrandbits(128))

    def add_node(self, node_id: int, *, may_vote: bool = True) -> Node:
        """A node that is not among the voters."""
        node = self.nodes[node_id] = Node(self, node_id, VoterSet(()), may_vote=may_vote)
        node.start()
        return node

    # -- time

    def schedule(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.events, (self.now_ms + delay_ms, self.sequence, action))

    def step(self) -> bool:
        if not self.events:
            return False
        at, _, action = heapq.heappop(self.events)
        self.now_ms = max(self.now_ms, at)
        action()
        self.invariants.check()
        return True

    def run(self, ms: int) -> None:
        until = self.now_ms + ms
        while self.events and self.events[0][0] <= until:
            self.step()
        self.now_ms = until

    def run_until(self, condition: Callable[[], object], within_ms: int = 20_000) -> None:
        until = self.now_ms + within_ms
        while not condition():
            assert self.now_ms <= until, f"not within {within_ms} ms"
            assert self.step(), "nothing happens any more"

    # -- network

    def passes(self, source: int, target: int) -> bool:
        return (source, target) not in self.cut and self.rng.random() >= self.loss

    def send(self, source: Node, effect: Send) -> None:
        life, target = source.life, self.nodes.get(effect.to.port)
        delay_ms = self.rng.randint(1, self.delay_ms_max)
        asked = (source.id, life, effect.number)

        def fail(refused: bool) -> None:
            if source.life == life and source.core is not None:
                source.core.failed(effect.number, self.now_ms, refused=refused)
                source.pump()

        def arrive_back(answer: Any) -> None:
            if source.life == life and source.core is not None:
                source.core.answered(effect.number, answer, self.now_ms)
                source.pump()

        def answer(found: Any) -> None:
            assert target is not None
            target.owed.pop(asked, None)
            if self.passes(target.id, source.id):
                self.schedule(self.rng.randint(1, self.delay_ms_max), lambda: arrive_back(found))
            else:
                self.schedule(1000, lambda: fail(False))

        def arrive() -> None:
            if target is None or target.core is None:
                self.schedule(1, lambda: fail(True))
            else:
                target.owed[asked] = lambda: fail(False)
                target.serve(effect.request, answer)

        if target is not None and not self.passes(source.id, target.id):
            self.schedule(1000, lambda: fail(False))
        else:
            self.schedule(delay_ms, arrive)

    def send_snapshot(self, source: Node, effect: FetchSnapshot) -> None:
        target = self.nodes.get(effect.leader.port)
        reached = target is not None and target.core is not None and self.passes(source.id, target.id)
        snapshot = target.log.snapshot if target is not None and reached else None
        core = None if target is None or not target.is_leader else target.core
        right = core is not None and core.epoch == effect.epoch
        if snapshot is None or not right or snapshot.end != effect.snapshot:
            source.at(100, lambda core: core.failed(effect.number, self.now_ms))
        else:
            source.at(20, lambda core: source.install(core, effect.number, effect.epoch, snapshot))

    def isolate(self, *ids: int) -> None:
        """Cut nodes off from all others, both ways."""
        self.cut = {(a, b) for a in self.nodes for b in self.nodes if (a in ids) != (b in ids)}

    # -- clients

    @property
    def leader(self) -> Node | None:
        """The established leader of the highest epoch."""
        found = [node for node in self.nodes.values() if node.core is not None and node.core.is_established]
        return max(found, key=lambda node: node.core.epoch if node.core else 0, default=None)

    def wait_for_leader(self, within_ms: int = 20_000) -> Node:
        self.run_until(lambda: self.leader is not None, within_ms)
        assert self.leader is not None
        return self.leader

    def write(self, node: Node) -> int:
        """Append a value at a leader; its offset."""
        assert node.core is not None
        self.written += 1
        node.append(node.core, Entry(node.core.epoch, self.written))
        node.sync_later(self.rng.randint(0, self.disk_ms_max))
        node.pump()
        return node.log.end_offset - 1

    def change_voters(self, change: Callable[[QuorumCore], object]) -> bool:
        """Ask the leader for a change; False if it refuses now."""
        leader = self.leader
        if leader is None or leader.core is None:
            return False
        try:
            change(leader.core)
        except ApiError:
            return False
        leader.pump()
        return True


def endpoints(node_id: int) -> tuple[VoterEndpoint, ...]:
    """The port is the id: that is how the network finds a node."""
    return (VoterEndpoint("CONTROLLER", f"node-{node_id}", node_id),)


def voter(node: Node) -> Voter:
    return Voter(node.id, node.disk.directory_id, endpoints(node.id))
