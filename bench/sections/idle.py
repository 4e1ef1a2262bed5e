"""What costs nothing should cost nothing: connections, partitions and consumers that are quiet."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from functools import partial

from bench import processes, topics
from bench.harness import LOAD_TIMEOUT_S, Harness
from bench.results import Measure
from bench.systems import Broker, System

TITLE = "Idle"
ABOUT = """Brokers of their own, with nothing else in them. Memory is the growth of resident memory divided by what
was added; of a JVM that says little, as its heap is taken beforehand. A quiet consumer polls a fetch session of 1,000
partitions in which nothing changes, without waiting. The clean start is that of a broker with 10,000 partitions after
a clean stop."""

CONNECTION_MEMORY = Measure("idle.connection_memory", "an idle connection", "KB")
CONNECTIONS_CPU = Measure("idle.connections_cpu", "CPU with idle connections", "% of a core")
PARTITION_MEMORY = Measure("idle.partition_memory", "an idle partition", "KB")
PARTITIONS_START = Measure("idle.partitions_start", "clean start with many partitions", "s")
SESSION_POLL = Measure("idle.session_poll", "a poll of 1,000 quiet partitions", "ms")

CONNECTIONS = 10_000
PARTITIONS = 10_000
TOPIC_PARTITIONS = 1_000
SETTLE_S = 3


def run(harness: Harness) -> None:
    for system in harness.turns():
        harness.sample(system, (SESSION_POLL,), partial(poll_session, harness, system))
    harness.stop_brokers()
    for system in harness.turns():
        quiet_connections = (CONNECTION_MEMORY, CONNECTIONS_CPU)
        harness.sample(system, quiet_connections, partial(hold_connections, harness, system))
    # Once each: ten thousand directories take their time, and the figures do not move.
    for system in harness.systems:
        quiet_partitions = (PARTITION_MEMORY, PARTITIONS_START)
        harness.sample(system, quiet_partitions, partial(hold_partitions, harness, system))


def hold_connections(harness: Harness, system: System) -> Mapping[str, float]:
    connections = harness.scaled(CONNECTIONS, CONNECTIONS // 5)
    broker = harness.fresh_broker(system)
    try:
        time.sleep(SETTLE_S)
        before_mb = broker.resident_mb()
        command = harness.load_command(broker, "idle", "", connections=connections)
        holder = processes.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            processes.read_json(processes.read_line(holder.stdout, holder, LOAD_TIMEOUT_S))
            time.sleep(SETTLE_S)
            percent = idle_percent(broker, harness.scaled(10, 5))
            each_kb = (broker.resident_mb() - before_mb) * 1e3 / connections
        finally:
            processes.stop(holder)
        return {CONNECTION_MEMORY.key: each_kb, CONNECTIONS_CPU.key: percent}
    finally:
        broker.stop()


def idle_percent(broker: Broker, seconds: float) -> float:
    """How much of a core a broker uses while nobody asks it anything."""
    before_s, began = broker.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (broker.cpu_s() - before_s) / (time.monotonic() - began) * 100


def poll_session(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.broker(system)
    with harness.topic(broker, TOPIC_PARTITIONS) as topic:
        seen = harness.load(broker, "session", topic, partitions=TOPIC_PARTITIONS, seconds=harness.scaled(4, 2))
    return {SESSION_POLL.key: seen["mean_ms"]}


def hold_partitions(harness: Harness, system: System) -> Mapping[str, float]:
    partitions = harness.scaled(PARTITIONS, PARTITIONS // 5)
    broker = harness.fresh_broker(system)
    try:
        time.sleep(SETTLE_S)
        before_mb = broker.resident_mb()
        for number in range(partitions // TOPIC_PARTITIONS):
            topics.create(broker.address, f"idle-{number}", TOPIC_PARTITIONS)
        time.sleep(SETTLE_S)
        each_kb = (broker.resident_mb() - before_mb) * 1e3 / partitions
        broker = broker.restarted()
        return {PARTITION_MEMORY.key: each_kb, PARTITIONS_START.key: broker.started_s}
    finally:
        broker.stop()
