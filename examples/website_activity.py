"""A website's activity through a broker: visitors click, the clicks are kept in order per visitor, and counted as
they arrive.

    make demo            (or: python examples/website_activity.py --visits 50000)

Starts a broker in a process of its own, creates a topic, and lets producers write page views that are keyed by
visitor while a consumer counts them. At the end every count is compared with the truth: nothing lost, nothing twice,
every visitor's views in order. Prints what it measured and exits non-zero if anything disagrees.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import ottla

TOPIC = "page-views"
PARTITIONS = 4
PRODUCERS = 2
PAGES = ["/", "/search", "/product", "/cart", "/checkout", "/help"]
SECONDS_MAX = 50.0


@dataclass
class Truth:
    """What the producers did, as the brokers acknowledged it."""

    views: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    failures: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass
class Observed:
    """What the consumer saw."""

    views: Counter[str] = field(default_factory=Counter)
    last_of_visitor: dict[str, int] = field(default_factory=dict)
    partition_of_visitor: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    out_of_order: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    bytes: int = 0
    count: int = 0


def write_views(bootstrap_servers: str, producer_number: int, visits: int, truth: Truth) -> None:
    """One web server: its visitors click through pages, and each view is an event keyed by the visitor."""
    rng = random.Random(producer_number)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
        }
    )
    views: Counter[str] = Counter()

    def delivered(error: KafkaError | None, message: Message) -> None:
        with truth.lock:
            if error is None:
                truth.acknowledged += 1
            else:
                truth.failures.append(str(error))

    steps: Counter[str] = Counter()
    for _ in range(visits):
        visitor = f"visitor-{producer_number}-{rng.randrange(500)}"
        page = rng.choice(PAGES)
        steps[visitor] += 1
        event = {"visitor": visitor, "page": page, "step": steps[visitor], "sent_ms": time.time() * 1000}
        views[page] += 1
        while True:
            try:
                producer.produce(TOPIC, key=visitor, value=json.dumps(event), on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    producer.flush(SECONDS_MAX)
    with truth.lock:
        truth.views.update(views)


def count_views(bootstrap_servers: str, expected: int, observed: Observed, deadline: float) -> None:
    """Count page views until all of them were seen."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    while observed.count < expected and time.monotonic() < deadline:
        for message in consumer.consume(500, timeout=0.2):
            value = message.value()
            if message.error() is not None or value is None:
                raise RuntimeError(f"the consumer failed: {message.error()}")
            take(observed, json.loads(value), message.partition() or 0, len(value))
    consumer.close()


def take(observed: Observed, event: dict[str, object], partition: int, size: int) -> None:
    visitor, step = str(event["visitor"]), int(str(event["step"]))
    observed.views[str(event["page"])] += 1
    observed.out_of_order += step != observed.last_of_visitor.get(visitor, 0) + 1
    observed.last_of_visitor[visitor] = step
    observed.partition_of_visitor[visitor].add(partition)
    observed.latencies_ms.append(time.time() * 1000 - float(str(event["sent_ms"])))
    observed.bytes += size
    observed.count += 1


def stream(bootstrap_servers: str, visits: int, console: Console) -> tuple[Truth, Observed, float]:
    """Run producers and the consumer together; returns what both say and how long it took."""
    truth, observed, started = Truth(), Observed(), time.monotonic()
    deadline = started + SECONDS_MAX
    share = visits // PRODUCERS
    threads = [
        threading.Thread(target=write_views, args=(bootstrap_servers, number, share, truth))
        for number in range(PRODUCERS)
    ]
    threads.append(
        threading.Thread(target=count_views, args=(bootstrap_servers, share * PRODUCERS, observed, deadline))
    )
    columns = (TextColumn("{task.description:<10}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        written = progress.add_task("written", total=share * PRODUCERS)
        counted = progress.add_task("counted", total=share * PRODUCERS)
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            threads[-1].join(0.1)
            progress.update(written, completed=truth.acknowledged)
            progress.update(counted, completed=observed.count)
            if not threads[-1].is_alive():
                for thread in threads:
                    thread.join(max(0.0, deadline - time.monotonic()))
                break
        progress.update(written, completed=truth.acknowledged)
        progress.update(counted, completed=observed.count)
    return truth, observed, time.monotonic() - started


def disagreements(truth: Truth, observed: Observed) -> list[str]:
    """What is wrong, in words; empty if all is as it must be."""
    wrong = [f"{len(truth.failures)} views were not written: {truth.failures[0]}"] if truth.failures else []
    if observed.views != truth.views:
        wrong.append(f"counts differ: written {dict(truth.views)}, read {dict(observed.views)}")
    if observed.out_of_order:
        wrong.append(f"{observed.out_of_order} views of a visitor came out of order")
    if any(len(partitions) > 1 for partitions in observed.partition_of_visitor.values()):
        wrong.append("the views of one visitor are spread over several partitions")
    return wrong


def report(console: Console, truth: Truth, observed: Observed, seconds: float, start_seconds: float) -> None:
    latencies = sorted(observed.latencies_ms) or [0.0]
    table = Table(title="What was measured", show_header=False)
    table.add_row("broker start to ready", f"{start_seconds:.2f} s")
    table.add_row("page views written and read", f"{observed.count:,}")
    table.add_row("throughput, written and read at once", f"{observed.count / seconds:,.0f} views/s")
    table.add_row("payload", f"{observed.bytes / 1e6:,.1f} MB")
    table.add_row("from click to count, median", f"{latencies[len(latencies) // 2]:,.1f} ms")
    table.add_row("from click to count, 99th percentile", f"{latencies[len(latencies) * 99 // 100]:,.1f} ms")
    table.add_row("visitors, each in one partition", f"{len(observed.partition_of_visitor):,}")
    console.print(table)
    pages = Table("page", "views written", "views counted", title="Views by page")
    for page, count in truth.views.most_common():
        pages.add_row(page, f"{count:,}", f"{observed.views[page]:,}")
    console.print(pages)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=200_000, help="how many page views (default: 200,000)")
    visits = parser.parse_args().visits
    console = Console()
    began = time.monotonic()
    with ottla.Server(process=True) as server:
        start_seconds = time.monotonic() - began
        console.print(f"A broker is ready on {server.bootstrap_servers} after {start_seconds:.2f} s.")
        admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
        truth, observed, seconds = stream(server.bootstrap_servers, visits, console)
    report(console, truth, observed, seconds, start_seconds)
    wrong = disagreements(truth, observed)
    for complaint in wrong:
        console.print(f"[red]wrong:[/red] {complaint}")
    if not wrong:
        console.print("Every view was counted once, in order, and the broker stopped cleanly.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
