"""How long nothing is acknowledged when a leader is killed under load, and when it is restarted as planned.

The brokers have their defaults and reach each other directly. Clients do not pause before they connect again: they meet
a broker that was struck a moment ago, and their pause, which grows with each attempt in vain, is none of the brokers'.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from chaos.clients.idempotent import IdempotentProducer
from chaos.cluster import Cluster
from chaos.recording import Clock, Recording
from simulator.history import Place

KILL_SECONDS_MAX: Final = 2.0
RESTART_SECONDS_MAX: Final = 0.3
DOWN_SECONDS: Final = 2.2
"""Longer than a gap may be, so that a broker that comes back does not end one."""
AFTER_SECONDS: Final = 0.5
RECONNECT_MS_MAX: Final = 100
IN_SYNC_SECONDS_MAX: Final = 30.0
PLACES: Final = [Place("orders", partition) for partition in range(3)]


class GapMeasurement:
    """A cluster under load, of which each broker is struck in turn."""

    def __init__(self, directory: Path) -> None:
        self._cluster = Cluster(directory, links=False)
        self._recording = Recording(Clock())

    def measure(self, nodes: Sequence[int] = (1, 2, 3)) -> tuple[list[float], list[float]]:
        """The longest gap of a partition for each kill, and for each restart, of these nodes."""
        cluster = self._cluster
        try:
            cluster.start()
            cluster.create_topic("orders", len(PLACES))
            clients = [
                IdempotentProducer(
                    name,
                    cluster.bootstrap_servers,
                    self._recording,
                    1,
                    places=PLACES,
                    in_flight_max=5,
                    reconnect_ms_max=RECONNECT_MS_MAX,
                )
                for name in ("producer-0", "producer-1")
            ]
            for client in clients:
                client.start()
            time.sleep(AFTER_SECONDS)
            restarts = [self._gap(node_id, self._stop) for node_id in nodes]
            kills = [self._gap(node_id, cluster.kill) for node_id in nodes]
            for client in clients:
                client.stop()
            for client in clients:
                client.join()
            return kills, restarts
        finally:
            cluster.close()

    def _stop(self, node_id: int) -> None:
        self._cluster.stop(node_id)

    def _gap(self, node_id: int, strike: Callable[[int], None]) -> float:
        """From the strike until the broker is back and all replicas are in sync."""
        began = self._recording.clock.seconds
        strike(node_id)
        time.sleep(DOWN_SECONDS)
        self._cluster.start(node_id)
        self._cluster.wait_in_sync(IN_SYNC_SECONDS_MAX)
        time.sleep(AFTER_SECONDS)
        return self._recording.longest_gap(PLACES, began).seconds


def measure_gaps(directory: Path, say: Callable[[str], None]) -> bool:
    """Print the gaps; False if one is longer than it may be."""
    kills, restarts = GapMeasurement(directory).measure()
    for what, gaps in (("restart", restarts), ("kill -9", kills)):
        say(f"{what}: " + ", ".join(f"{gap:.3f} s" for gap in gaps))
    say(
        f"gaps: at most {max(kills):.2f} s after kill -9 (bound {KILL_SECONDS_MAX} s), {max(restarts):.2f} s in a "
        f"planned restart (bound {RESTART_SECONDS_MAX} s)"
    )
    return max(kills) <= KILL_SECONDS_MAX and max(restarts) <= RESTART_SECONDS_MAX
