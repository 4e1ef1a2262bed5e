"""Faults: a plan that is drawn before the run, one stream of chance for each kind, and what each of them does.

Theory of operation. A fault is a time, a kind, a node, a duration and a number. The plan is a list of them and nothing
else, so any of them can be taken out and the rest happen as before; that is how a failing run is shrunk. A fault that
finds nothing to do (its node is down already) does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from simulator.chance import Chance
from simulator.options import Options
from simulator.timeline import SECOND_US, Call

if TYPE_CHECKING:
    from simulator.cluster_run import ClusterRun
    from simulator.node import SimulatedNode


class Fault(NamedTuple):
    """One thing that goes wrong."""

    at_us: int
    kind: str
    node: int
    """An index into the run's nodes."""
    for_us: int
    number: int

    def __str__(self) -> str:
        return (
            f"{self.at_us / SECOND_US:.6f} s {self.kind} node-{self.node + 1} "
            f"for {self.for_us / SECOND_US:.3f} s ({self.number})"
        )


WEIGHTS: Final = {
    "kill": 3.0,
    "kill in a write": 3.0,
    "power": 3.0,
    "power in a write": 3.0,
    "crash loop": 1.0,
    "stop": 2.0,
    "pause": 1.0,
    "slow": 1.0,
    "reset": 2.0,
    "clog": 1.0,
    "cut": 1.0,
    "clock": 0.7,
    "full": 0.7,
    "sync error": 0.5,
    "write error": 0.5,
    "unrest": 1.0,
    "wiped disk": 0.7,
    "bit rot": 0.7,
}
"""Kinds, and how often each comes relative to the others."""
SHORT: Final = 0.02
ROT_US_MAX: Final = 8 * SECOND_US
POWER_KINDS: Final = ("power", "power in a write", "crash loop", "sync error")
"""After these a disk may lack what was not synced; they happen only where another good copy is left."""
DISK_KINDS: Final = ("wiped disk", "bit rot")
"""After these it may lack anything; they happen only where all others have everything, and until it has everything
again nothing but the network fails of the others: with one good copy less, what they lose might be the last one."""
NETWORK_KINDS: Final = ("reset", "clog", "cut", "slow", "pause", "clock")


def plan(seed: int, options: Options) -> list[Fault]:
    """The faults of a seed, in the order of their times."""
    chance = Chance(seed)
    total = sum(WEIGHTS.values())
    faults: list[Fault] = []
    for kind, weight in WEIGHTS.items():
        rng = chance.stream(f"fault/{kind}")
        at = rng.expovariate(weight / total / options.seconds_between_faults)
        while at < options.seconds:
            duration = min(rng.expovariate(1 / 3.0), 30.0)
            node, number = rng.randrange(options.machines), rng.randrange(1 << 30)
            if number % 4 == 0:
                duration *= SHORT  # Over while others are still busy with how it began.
            faults.append(Fault(int(at * SECOND_US), kind, node, int(duration * SECOND_US), number))
            at += rng.expovariate(weight / total / options.seconds_between_faults)
    return sorted(faults)


class FaultInjector:
    """Makes the faults of a plan happen, and takes them back."""

    def __init__(self, run: ClusterRun) -> None:
        self._run = run
        self._timeline = run.room.timeline
        self._undo: dict[int, Callable[[], None]] = {}
        self._count = 0

    def schedule(self, faults: list[Fault], start_us: int) -> None:
        for fault in faults:
            self._timeline.at(start_us + fault.at_us, Call(partial(self._apply, fault)))

    def heal(self) -> None:
        """Take back everything that has not ended by itself, and what has not begun."""
        for number in list(self._undo):
            self._undo.pop(number)()
        for node in self._run.nodes:
            node.mount.faults.disarm()

    def _apply(self, fault: Fault) -> None:
        if self._run.is_healed:
            return
        node = self._run.nodes[fault.node]
        if fault.kind in POWER_KINDS and not self._run.may_lose_data(node):
            return
        if fault.kind in DISK_KINDS and not self._run.may_lose_disk(node):
            return
        if fault.kind not in NETWORK_KINDS and self._another_disk_is_lost(node):
            return
        self._run.room.note(node.host, "fault", str(fault))
        self._run.room.counts[f"fault: {fault.kind}"] += 1
        _KINDS[fault.kind](self, node, fault)

    def _another_disk_is_lost(self, node: SimulatedNode) -> bool:
        return any(other.disk_lost for other in self._run.nodes if other is not node)

    def _spare_the_others(self, node: SimulatedNode) -> None:
        """Whatever was to kill them in a write comes to nothing."""
        for other in self._run.nodes:
            if other is not node:
                other.mount.faults.kill_after = -1

    def _until(self, fault: Fault, undo: Callable[[], None]) -> None:
        self._count += 1
        number = self._count
        self._undo[number] = undo
        self._timeline.after(fault.for_us, Call(lambda: self._undo.pop(number, _nothing)()))

    # -- processes and machines

    def _kill(self, node: SimulatedNode, fault: Fault) -> None:
        if self._run.may_be_killed(node):
            node.kill()
            self._until(fault, node.start)

    def _kill_in_a_write(self, node: SimulatedNode, fault: Fault) -> None:
        may_be_killed = partial(self._run.may_be_killed, node)
        node.kill_at_operation(1 + fault.number % 40, partial(self._kill, node, fault), may_be_killed)

    def _power(self, node: SimulatedNode, fault: Fault) -> None:
        self._lose_power(node)
        self._until(fault, node.start)

    def _lose_power(self, node: SimulatedNode) -> None:
        """If that may be by now."""
        if self._run.may_lose_data(node):
            node.lose_power()
        elif self._run.may_be_killed(node):
            node.kill()

    def _power_in_a_write(self, node: SimulatedNode, fault: Fault) -> None:
        may_be_killed = partial(self._run.may_be_killed, node)
        node.kill_at_operation(1 + fault.number % 40, partial(self._power, node, fault), may_be_killed)

    def _crash_loop(self, node: SimulatedNode, fault: Fault) -> None:
        """The power goes, and goes again while the node recovers, a few times."""
        node.lose_power()
        pause_us = 50_000
        for turn in range(1 + fault.number % 4):
            after = (fault.number >> (turn * 5)) % 60
            again = partial(self._start_to_fail, node, fault, after)
            self._timeline.after(pause_us * (turn * 4 + 1), Call(again))
        self._until(fault, node.start)

    def _start_to_fail(self, node: SimulatedNode, fault: Fault, after: int) -> None:
        if not self._run.is_healed and not self._another_disk_is_lost(node):
            self._lose_power(node)
            node.start()
            may_be_killed = partial(self._run.may_be_killed, node)
            # It may be late: then nobody else starts the node again.
            node.kill_at_operation(1 + after, partial(self._power, node, fault), may_be_killed)

    def _unrest(self, node: SimulatedNode, fault: Fault) -> None:
        """Many short faults at once, so that elections meet restarts and cut links."""
        nodes = self._run.nodes
        for turn in range(4 + fault.number % 8):
            draw = fault.number >> turn
            victim = nodes[(fault.node + draw) % len(nodes)]
            at_us = turn * (20_000 + fault.number % 300_000)
            short = fault._replace(for_us=5000 + (draw * 7919) % 700_000, number=draw)
            happen = self._kill if draw & 1 else self._cut
            self._timeline.after(at_us, Call(partial(self._unless_healed, happen, victim, short)))

    def _unless_healed(self, happen: Callable[[SimulatedNode, Fault], None], node: SimulatedNode, fault: Fault) -> None:
        if not self._run.is_healed and not self._another_disk_is_lost(node):
            happen(node, fault)

    def _stop(self, node: SimulatedNode, fault: Fault) -> None:
        node.stop()
        self._until(fault, partial(self._start_when_stopped, node))

    def _start_when_stopped(self, node: SimulatedNode) -> None:
        """A clean stop takes its time; whoever wants the node back waits for it."""
        if node.is_alive and not node.is_ready and not self._run.is_healed:
            self._timeline.after(SECOND_US // 4, Call(partial(self._start_when_stopped, node)))
        else:
            node.start()

    def _pause(self, node: SimulatedNode, fault: Fault) -> None:
        node.pause()
        self._until(fault, node.resume)

    def _slow(self, node: SimulatedNode, fault: Fault) -> None:
        loop, threads = node.loop, node.threads
        if loop is None or threads is None:
            return
        before = loop.turn_us_max, threads.slowness
        loop.turn_us_max, threads.slowness = 2000, 20.0

        def undo() -> None:
            loop.turn_us_max, threads.slowness = before

        self._until(fault, undo)

    def _clock(self, node: SimulatedNode, fault: Fault) -> None:
        """The wall clock is set, and the monotonic one drifts for a while."""
        node.clock.offset_ms += fault.number % 120_000 - 60_000
        loop = node.loop
        if loop is not None:
            loop.set_rate(0.95 + fault.number % 100 / 1000)
            self._until(fault, lambda: loop.set_rate(1.0))

    # -- network

    def _others(self, node: SimulatedNode, fault: Fault) -> list[str]:
        """Some hosts or all that the node talks to."""
        hosts = [other for other in self._run.hosts() if other != node.host]
        if fault.number % 3 == 0:
            return hosts
        return [host for index, host in enumerate(hosts) if fault.number >> (index % 20 + 4) & 1]

    def _reset(self, node: SimulatedNode, fault: Fault) -> None:
        for host in self._others(node, fault):
            self._run.room.network.reset(node.host, host)
            self._run.room.network.reset(host, node.host)

    def _clog(self, node: SimulatedNode, fault: Fault) -> None:
        network = self._run.room.network
        delay_us = 2000 + fault.number % 400_000
        links = [network.link(node.host, host) for host in self._others(node, fault)]
        for link in links:
            link.delay_us_extra += delay_us

        def undo() -> None:
            for link in links:
                link.delay_us_extra -= delay_us

        self._until(fault, undo)

    def _cut(self, node: SimulatedNode, fault: Fault) -> None:
        """One way or both."""
        network, both = self._run.room.network, fault.number % 2 == 0
        pairs = []
        for host in self._others(node, fault):
            if both or fault.number >> 2 & 1:
                pairs.append((node.host, host))
            if both or not fault.number >> 2 & 1:
                pairs.append((host, node.host))
        for source, target in pairs:
            network.cut(source, target)

        def undo() -> None:
            for source, target in pairs:
                network.heal(source, target)

        self._until(fault, undo)

    # -- disk

    def _full(self, node: SimulatedNode, fault: Fault) -> None:
        node.disk_full = True

        def undo() -> None:
            node.disk_full = False

        self._until(fault, undo)

    def _wiped_disk(self, node: SimulatedNode, fault: Fault) -> None:
        """A new, empty disk in its place."""
        node.kill()
        node.replace_disk()
        self._spare_the_others(node)
        self._until(fault, node.start)

    def _bit_rot(self, node: SimulatedNode, fault: Fault) -> None:
        """One bit at rest is another; when somebody notices, or after a while, the disk is replaced."""
        node.kill()
        if node.rot(fault.number):
            self._spare_the_others(node)
            self._timeline.after(ROT_US_MAX, Call(node.rot_noticed))
        self._until(fault, node.start)

    def _sync_error(self, node: SimulatedNode, fault: Fault) -> None:
        """The next sync fails, if that may be by then; its process ends of it."""
        faults = node.mount.faults
        faults.may_fail_sync = partial(self._run.may_lose_data, node)
        faults.on_failed_sync = node.sync_failed
        faults.fail_syncs = True
        self._until(fault, node.start)

    def _write_error(self, node: SimulatedNode, fault: Fault) -> None:
        """Takes nothing, but its process ends of it."""
        if not self._run.may_be_killed(node):
            return
        faults = node.mount.faults
        faults.fail_writes = True

        def undo() -> None:
            faults.fail_writes = False

        self._until(fault, undo)


def _nothing() -> None:
    pass


_KINDS: Final[dict[str, Callable[[FaultInjector, SimulatedNode, Fault], None]]] = {
    "kill": FaultInjector._kill,
    "kill in a write": FaultInjector._kill_in_a_write,
    "power": FaultInjector._power,
    "power in a write": FaultInjector._power_in_a_write,
    "crash loop": FaultInjector._crash_loop,
    "stop": FaultInjector._stop,
    "pause": FaultInjector._pause,
    "slow": FaultInjector._slow,
    "clock": FaultInjector._clock,
    "reset": FaultInjector._reset,
    "clog": FaultInjector._clog,
    "cut": FaultInjector._cut,
    "full": FaultInjector._full,
    "sync error": FaultInjector._sync_error,
    "write error": FaultInjector._write_error,
    "unrest": FaultInjector._unrest,
    "wiped disk": FaultInjector._wiped_disk,
    "bit rot": FaultInjector._bit_rot,
}
