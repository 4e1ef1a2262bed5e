"""Faults: what is done to a cluster, for how long, and how it is undone. A plan of them is drawn from a seed.

At least one good copy of each committed record is left: a disk is only wiped while all replicas are in sync.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chaos.cluster import Cluster

IN_SYNC_SECONDS_MAX: Final = 60.0
CLOCK_STEP_MS: Final = 45 * 60 * 1000
"""Longer than any time-out of the clients. Less than an hour: brokers refuse records from so far in the future."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    kind: str
    nodes: tuple[int, ...]
    hold_seconds: float
    rest_seconds: float
    """Until the next one."""

    def __str__(self) -> str:
        return f"{self.kind} {','.join(map(str, self.nodes))} for {self.hold_seconds:.1f} s"

    def happen(self, cluster: Cluster) -> None:
        """Do it, wait, undo it. TooLate if the cluster does not come back."""
        KINDS[self.kind].happen(cluster, self)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of faults."""

    nodes: int
    """How many it strikes."""
    seconds: tuple[float, float]
    happen: Callable[[Cluster, Fault], None]


def _kill(cluster: Cluster, fault: Fault) -> None:
    cluster.kill(*fault.nodes)
    time.sleep(fault.hold_seconds)
    cluster.start(*fault.nodes)


def _pause(cluster: Cluster, fault: Fault) -> None:
    for node_id in fault.nodes:
        cluster.nodes[node_id].pause()
    time.sleep(fault.hold_seconds)
    for node_id in fault.nodes:
        cluster.nodes[node_id].resume()


def _cut_off(cluster: Cluster, fault: Fault) -> None:
    """A node and all others do not hear of each other."""
    (lonely,) = fault.nodes
    for other in cluster.nodes:
        if other != lonely:
            _cut(cluster, lonely, other)
            _cut(cluster, other, lonely)
    _heal(cluster, fault)


def _cut_pair(cluster: Cluster, fault: Fault) -> None:
    """Two nodes do not hear of each other, and a third hears both."""
    first, second = fault.nodes
    _cut(cluster, first, second)
    _cut(cluster, second, first)
    _heal(cluster, fault)


def _cut_one_way(cluster: Cluster, fault: Fault) -> None:
    first, second = fault.nodes
    _cut(cluster, first, second)
    _heal(cluster, fault)


def _mute(cluster: Cluster, fault: Fault) -> None:
    """A node hears everybody and is heard by nobody."""
    (mute,) = fault.nodes
    for other in cluster.nodes:
        if other != mute:
            _cut(cluster, mute, other)
    _heal(cluster, fault)


def _cut(cluster: Cluster, sender: int, receiver: int) -> None:
    assert cluster.links is not None
    cluster.links.cut(sender, receiver)


def _heal(cluster: Cluster, fault: Fault) -> None:
    assert cluster.links is not None
    time.sleep(fault.hold_seconds)
    cluster.links.heal()


def _reset(cluster: Cluster, fault: Fault) -> None:
    """Connections break again and again."""
    assert cluster.links is not None
    end = time.monotonic() + fault.hold_seconds
    while time.monotonic() < end:
        cluster.links.reset(fault.nodes[0])
        time.sleep(0.2)


def _fill_disk(cluster: Cluster, fault: Fault) -> None:
    """Nothing can be written for a while. A broker may stop then, or wait for room."""
    (full,) = fault.nodes
    node = cluster.nodes[full]
    node.fill_disk()
    time.sleep(fault.hold_seconds)
    node.free_disk()
    if not node.is_running:
        cluster.gone(full)
        cluster.start(full)


def _restart(cluster: Cluster, fault: Fault) -> None:
    for node_id in fault.nodes:
        cluster.stop(node_id)
        time.sleep(fault.hold_seconds)
        cluster.start(node_id)
        if len(fault.nodes) > 1:
            cluster.wait_in_sync(IN_SYNC_SECONDS_MAX)


def _step_clock(cluster: Cluster, fault: Fault, step_ms: int) -> None:
    for node_id in fault.nodes:
        cluster.nodes[node_id].set_clock(step_ms)
    time.sleep(fault.hold_seconds)
    for node_id in fault.nodes:
        cluster.nodes[node_id].set_clock(0)


def _clock_ahead(cluster: Cluster, fault: Fault) -> None:
    _step_clock(cluster, fault, CLOCK_STEP_MS)


def _clock_behind(cluster: Cluster, fault: Fault) -> None:
    _step_clock(cluster, fault, -CLOCK_STEP_MS)


def _wipe(cluster: Cluster, fault: Fault) -> None:
    """A node comes back with an empty disk and its old id."""
    (wiped,) = fault.nodes
    cluster.wait_in_sync(IN_SYNC_SECONDS_MAX)
    cluster.kill(wiped)
    cluster.nodes[wiped].wipe()
    time.sleep(fault.hold_seconds)
    cluster.start(wiped)
    cluster.wait_in_sync(IN_SYNC_SECONDS_MAX)


KINDS: Final = {
    "kill": Kind(1, (0.1, 3), _kill),
    "pause": Kind(1, (0.5, 6), _pause),
    "cut off": Kind(1, (0.5, 6), _cut_off),
    "restart": Kind(1, (0, 1), _restart),
    "cut one way": Kind(2, (0.5, 6), _cut_one_way),
    "full disk": Kind(1, (1, 4), _fill_disk),
    "kill two": Kind(2, (0.1, 1), _kill),
    "mute": Kind(1, (0.5, 6), _mute),
    "wipe": Kind(1, (0, 1), _wipe),
    "rolling restart": Kind(3, (0, 0.5), _restart),
    "cut pair": Kind(2, (0.5, 6), _cut_pair),
    "reset": Kind(1, (0.5, 2), _reset),
    "kill all": Kind(3, (0, 0.5), _kill),
    "pause two": Kind(2, (0.5, 5), _pause),
    "clock ahead": Kind(1, (0.5, 3), _clock_ahead),
    "clock behind": Kind(1, (0.5, 3), _clock_behind),
}
"""Each kind, the more telling ones first: a short run has no time for all."""


def plan(seed: int, nodes: int, seconds: float) -> list[Fault]:
    """Faults for more than this time. Every kind comes once before one comes twice."""
    chance = random.Random(f"faults/{seed}")
    faults: list[Fault] = []
    planned = 0.0
    while planned < seconds:
        kinds = list(KINDS)
        chance.shuffle(kinds)
        for name in kinds:
            kind = KINDS[name]
            struck = tuple(chance.sample(range(1, nodes + 1), kind.nodes))
            fault = Fault(name, struck, chance.uniform(*kind.seconds), chance.uniform(0, 1.5))
            faults.append(fault)
            planned += fault.hold_seconds + fault.rest_seconds
    return faults
