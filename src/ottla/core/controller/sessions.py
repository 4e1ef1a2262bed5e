"""When each broker was heard last. In no record: a new controller gives every broker a full session."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.core.controller.image import BrokerImage


class BrokerSessions:
    """The sessions of the brokers that are not fenced. Times are milliseconds of any clock that does not jump."""

    __slots__ = ("_heard_ms", "_since_ms", "_timeout_ms")

    def __init__(self, timeout_ms: int, now_ms: float) -> None:
        self._timeout_ms = timeout_ms
        self._since_ms = now_ms
        self._heard_ms: dict[int, float] = {}

    def heard(self, broker_id: int, now_ms: float) -> None:
        """A broker lives."""
        self._heard_ms[broker_id] = now_ms

    def ended(self, brokers: Mapping[int, BrokerImage], now_ms: float, *, except_for: int) -> list[BrokerImage]:
        """Brokers that are not fenced and were silent for too long."""
        return [
            broker
            for broker in brokers.values()
            if not broker.fenced and broker.id != except_for and self._ends_ms(broker) <= now_ms
        ]

    def next_end_ms(self, brokers: Mapping[int, BrokerImage], *, except_for: int) -> float | None:
        """When the next session ends if nobody is heard; None if there is none."""
        ends = (self._ends_ms(broker) for broker in brokers.values() if not broker.fenced and broker.id != except_for)
        return min(ends, default=None)

    def _ends_ms(self, broker: BrokerImage) -> float:
        return self._heard_ms.get(broker.id, self._since_ms) + self._timeout_ms
