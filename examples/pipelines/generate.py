"""Writes website activity and service metrics to their topics, as a shop would in a few hours.

    python generate.py
    python generate.py --start 2026-03-01T13:00

Users look at pages, with pauses, so that sessions can be found; services say how long each request took. Records come a
few minutes out of order, and a few of them are broken. What is written depends on the options alone.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

import steps

PAGES = ("/", "/books", "/books/1984", "/cart", "/paid")
SERVICES = ("catalogue", "orders", "security")
DISORDER_SECONDS_MAX = 300
BROKEN_EVERY = 40
BROKEN = (
    None,
    "{no json",
    "{}",
    '{"user": "user-1", "service": "orders", "at": "soon"}',
    '{"user": "user-1", "service": "orders", "at": "2026-03-01T09:00:00Z", "cents": -1, "ms": -1}',
)


class Message(NamedTuple):
    topic: str
    key: str
    value: str | None
    sent: datetime
    """Records are written in this order, which is not quite that of the times in them."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--start", default="2026-03-01T09:00", help="when the hours begin, in UTC (%(default)s)")
    parser.add_argument("--hours", type=float, default=4.0, help="how many (%(default)s)")
    parser.add_argument("--records", type=int, default=5_000, help="records in each topic (%(default)s)")
    parser.add_argument("--users", type=int, default=200, help="users of the website (%(default)s)")
    options = parser.parse_args()
    start, span = datetime.fromisoformat(options.start), timedelta(hours=options.hours)
    steps.make_topics()
    count = write([*activity(start, span, options.records, options.users), *metrics(start, span, options.records)])
    end = start + span
    print(f"{count} records of {start:%Y-%m-%d %H:%M} to {end:%H:%M} are in {steps.ACTIVITY} and {steps.METRICS}.")
    print(f"To go on: python generate.py --start {end:%Y-%m-%dT%H:%M}")


def activity(start: datetime, span: timedelta, count: int, users: int) -> Iterator[Message]:
    """Visits of a few views each, which may overlap, touch, or be cut off by the end of the hours."""
    chosen = random.Random(f"activity {start}")
    user, at, left = "", start, 0
    for number in range(count):
        if left == 0:
            user, at, left = f"user-{chosen.randrange(users)}", start + span * chosen.random(), chosen.randrange(1, 8)
        page = chosen.choice(PAGES)
        cents = chosen.randrange(500, 9_000) if page == "/paid" else 0
        value = json.dumps({"user": user, "page": page, "at": _text(at), "cents": cents})
        yield _message(steps.ACTIVITY, user, value, at, number, chosen)
        at, left = min(at + timedelta(minutes=chosen.randrange(20)), start + span), left - 1


def metrics(start: datetime, span: timedelta, count: int) -> Iterator[Message]:
    chosen = random.Random(f"metrics {start}")
    for number in range(count):
        service, at = chosen.choice(SERVICES), start + span * chosen.random()
        ms, status = chosen.randrange(2, 400), chosen.choice((200, 200, 200, 404, 500))
        value = json.dumps({"service": service, "at": _text(at), "ms": ms, "status": status})
        yield _message(steps.METRICS, service, value, at, number, chosen)


def _message(topic: str, key: str, value: str | None, at: datetime, number: int, chosen: random.Random) -> Message:
    sent = at + timedelta(seconds=chosen.randrange(DISORDER_SECONDS_MAX))
    if number % BROKEN_EVERY == BROKEN_EVERY - 1:
        value = chosen.choice(BROKEN)
    return Message(topic, key, value, sent)


def _text(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds") + "Z"


def write(messages: list[Message]) -> int:
    from ottla.client.cluster import Cluster
    from ottla.client.producer import Producer
    from ottla.client.settings import ClientSettings

    cluster = Cluster(ClientSettings.of(steps.bootstrap()))
    try:
        with Producer(cluster) as producer:
            for message in sorted(messages, key=lambda message: message.sent):
                value = None if message.value is None else message.value.encode()
                producer.send(message.topic, value, key=message.key.encode())
    finally:
        cluster.close()
    return len(messages)


if __name__ == "__main__":
    main()
