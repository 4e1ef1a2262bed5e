"""What flows through the demo: website activity, service logs and service metrics."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PARTITIONS: Final = 3
VISITS: Final = "visits"
HEALTH: Final = "health"
RESULTS: Final = (VISITS, HEALTH)
"""Topics that the Spark job writes: the first from the activity, the second from logs and metrics."""

PAGES: Final = ("/", "/search", "/books", "/books/1984", "/cart", "/checkout", "/help")
LEVELS: Final = ("debug", "info", "info", "info", "warning", "error")
SERVICES: Final = tuple(f"{name}-{number}" for name in ("web", "orders", "catalogue", "mail") for number in range(8))
GAUGES: Final = ("cpu", "memory", "requests")
USERS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Event:
    """One event: the key, what is in it, and how the job must count it."""

    key: str
    fields: dict[str, object]
    category: str
    amount: int


@dataclass(frozen=True, slots=True)
class Stream:
    """A topic, its share of all events, and how an event of it is made up."""

    topic: str
    share: float
    make: Callable[[random.Random], Event]


def _view(chance: random.Random) -> Event:
    user, page = f"user-{chance.randrange(USERS)}", chance.choice(PAGES)
    return Event(user, {"user": user, "page": page}, page, 1)


def _log_line(chance: random.Random) -> Event:
    service, level = chance.choice(SERVICES), chance.choice(LEVELS)
    text = f"request {chance.randrange(1 << 32):08x} took {chance.randrange(1, 900)} ms"
    return Event(service, {"service": service, "level": level, "text": text}, level, 1)


def _sample(chance: random.Random) -> Event:
    service, name, value = chance.choice(SERVICES), chance.choice(GAUGES), chance.randrange(1, 1000)
    return Event(service, {"service": service, "name": name, "value": value}, name, value)


STREAMS: Final = (
    Stream("activity", 0.5, _view),
    Stream("service-logs", 0.3, _log_line),
    Stream("service-metrics", 0.2, _sample),
)
