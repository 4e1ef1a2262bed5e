"""Consumer groups: how fast they settle, and what they cost while nothing happens."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping
from functools import partial

from bench import processes
from bench.harness import LOAD_TIMEOUT_S, Harness
from bench.results import Measure
from bench.sections.idle import idle_percent
from bench.systems import System

TITLE = "Groups"
ABOUT = """Twenty librdkafka consumers on 100 partitions, in both group protocols: from the first one's start until
every partition has its owner for good, and again after one consumer has left. Then 1,000 classic groups of five members
each that do nothing but send heartbeats, every three seconds. Then commits of one offset
each, from 32 connections."""

MEMBERS, PARTITIONS = 20, 100
PROTOCOLS = ("classic", "consumer")
HEARTBEATS_CPU = Measure("groups.heartbeats_cpu", "CPU with 1,000 groups of 5", "% of a core")
COMMITS = (
    Measure("groups.commits", "offset commits, 32 connections", "requests/s", higher_is_better=True),
    Measure("groups.commits_p99", "offset commits, 32 connections, p99", "ms"),
)
SETTLE_S = 12
"""A member learns with its next heartbeat that another one has come, and joins anew."""


def settling(protocol: str) -> tuple[Measure, Measure]:
    return (
        Measure(f"groups.{protocol}.join", f"{protocol} protocol, 20 members join", "s"),
        Measure(f"groups.{protocol}.leave", f"{protocol} protocol, one of them leaves", "s"),
    )


def run(harness: Harness) -> None:
    for protocol in PROTOCOLS:
        for system in harness.turns():
            harness.sample(system, settling(protocol), partial(settle, harness, system, protocol))
    for system in harness.systems:
        harness.warm(partial(commit, harness, system))
    for system in harness.turns():
        harness.sample(system, COMMITS, partial(commit, harness, system))
    harness.stop_brokers()
    for system in harness.systems:
        harness.sample(system, (HEARTBEATS_CPU,), partial(beat, harness, system))


def settle(harness: Harness, system: System, protocol: str) -> Mapping[str, float]:
    broker = harness.broker(system)
    with harness.topic(broker, PARTITIONS) as topic:
        seen = harness.client("group_members", broker.address, topic, PARTITIONS, MEMBERS, protocol)
    join, leave = settling(protocol)
    return {join.key: seen["join_s"], leave.key: seen["leave_s"]}


def commit(harness: Harness, system: System) -> Mapping[str, float]:
    broker = harness.broker(system)
    with harness.topic(broker, 4) as topic:
        seen = harness.load(broker, "commits", topic, connections=32, seconds=harness.scaled(5, 2))
    rate, p99 = COMMITS
    return {rate.key: seen["per_second"], p99.key: seen["p99_ms"]}


def beat(harness: Harness, system: System) -> Mapping[str, float]:
    groups = harness.scaled(1000, 200)
    broker = harness.fresh_broker(system)
    try:
        command = harness.load_command(broker, "members", "beat", groups=groups, group_members=5)
        holder = processes.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            assert holder.stdout is not None
            processes.read_json(processes.read_line(holder.stdout, holder, LOAD_TIMEOUT_S))
            time.sleep(SETTLE_S)
            return {HEARTBEATS_CPU.key: idle_percent(broker, harness.scaled(12, 6))}
        finally:
            processes.stop(holder)
    finally:
        broker.stop()
