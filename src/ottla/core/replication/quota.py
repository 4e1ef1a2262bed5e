"""Replication quotas: so many bytes a second for throttled replicas, on the leader's side and on the follower's.

A bucket that fills by the rate and holds one window of it. Whoever takes more than there is has the rest on credit and
waits until it is paid: a batch cannot be cut, so the rate is kept on average and not within each second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

WINDOW_MS: Final = 1_000
UNLIMITED: Final = 2**63 - 1
ALL_REPLICAS: Final = "*"


class ReplicationQuota:
    """What throttled replicas may still move."""

    __slots__ = ("_balance", "_filled_ms", "_rate")

    def __init__(self, rate_bytes_per_second: int = UNLIMITED) -> None:
        self._rate = rate_bytes_per_second
        self._balance = float(rate_bytes_per_second)
        self._filled_ms = 0

    def set_rate(self, rate_bytes_per_second: int) -> None:
        if rate_bytes_per_second != self._rate:
            self._rate = rate_bytes_per_second
            self._balance = min(self._balance, float(rate_bytes_per_second))

    def record(self, size: int, now_ms: int) -> None:
        """Throttled replicas have moved so much."""
        if self._rate < UNLIMITED:
            self._fill(now_ms)
            self._balance -= size

    def wait_ms(self, now_ms: int) -> int:
        """How long throttled replicas have to pause; 0 if they may go on."""
        if self._rate >= UNLIMITED:
            return 0
        self._fill(now_ms)
        if self._balance > 0:
            return 0
        return WINDOW_MS if self._rate <= 0 else int(-self._balance * 1000 / self._rate) + 1

    def _fill(self, now_ms: int) -> None:
        elapsed_ms = now_ms - self._filled_ms
        if elapsed_ms > 0:
            self._balance = min(self._balance + self._rate * elapsed_ms / 1000, self._rate * WINDOW_MS / 1000)
        self._filled_ms = now_ms


def is_throttled(throttled_replicas: Iterable[str], partition: int, broker_id: int) -> bool:
    """Whether a replica is in a `*.replication.throttled.replicas` list: `partition:broker` pairs, or `*`."""
    pair = f"{partition}:{broker_id}"
    return any(entry in (pair, ALL_REPLICAS) for entry in throttled_replicas)
