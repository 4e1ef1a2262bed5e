"""Three brokers: what replication costs, and what the loss of a broker does."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from bench import clusters, processes, topics
from bench.clusters import BROKERS, Cluster
from bench.errors import NotMeasured
from bench.harness import LOAD_TIMEOUT_S, ROOT, Harness
from bench.results import Measure
from bench.sections.produce import Case, performance_tool
from bench.systems import System

TITLE = "Cluster"
ABOUT = """Three brokers that are controllers too, topics with three replicas, `min.insync.replicas=2`, all else with
each system's defaults. CPU and memory are those of all brokers together. Ready means that each broker names all three;
formatting is counted. Gaps are the longest time that a partition was without an acknowledgement while librdkafka wrote
with acks=all to three of them, when a leader was killed with SIGKILL, and when it was stopped with SIGTERM; a broker
less in each round, so that the active controller is among them. Failover is the time after SIGKILL until every one of
many partitions has a leader that answers; idle is the cluster with as many partitions before that."""

READY = Measure("cluster.ready", "three brokers ready", "s")
PRODUCE_CASE = Case("java_1kb_replicated", "Java, 1 kB, acks=all", 200_000, 1000, ("acks=all",))
PRODUCE = (
    Measure("cluster.produce.rate", PRODUCE_CASE.title, "MB/s", higher_is_better=True),
    Measure("cluster.produce.cpu", f"{PRODUCE_CASE.title}, CPU of all brokers", "s/GB"),
)
REQUESTS = (
    Measure("cluster.requests.rate", "one record, 32 connections", "requests/s", higher_is_better=True),
    Measure("cluster.requests.p50", "one record, 32 connections, p50", "ms"),
    Measure("cluster.requests.p99", "one record, 32 connections, p99", "ms"),
    Measure("cluster.requests.cpu", "one record, 32 connections, CPU of all brokers", "us/request"),
)
RESIDENT_LOADED = Measure("cluster.resident_loaded", "memory of all after load", "MB")
KILL_GAP = Measure("cluster.kill_gap", "longest gap when a leader is killed", "s")
STOP_GAP = Measure("cluster.stop_gap", "longest gap when a leader is stopped", "s")
IDLE_CPU = Measure("cluster.idle_cpu", "CPU of all, idle, 5,000 partitions", "% of a core")
FAILOVER = Measure("cluster.failover", "failover of 5,000 partitions", "s")

QUICK_DIVISOR = 4
PARTITIONS = 5_000
TOPIC_PARTITIONS = 500
SETTLE_S = 5
Clusters = dict[str, Cluster]


def run(harness: Harness) -> None:
    harness.stop_brokers()
    running: Clusters = {}
    try:
        for system in harness.turns():
            harness.sample(system, (READY,), partial(make_ready, harness, system, running))
        for system in harness.systems:
            harness.warm(partial(warm_up, harness, system, running))
        for system in harness.turns():
            harness.sample(system, PRODUCE, partial(produce, harness, system, running))
        for system in harness.turns():
            harness.sample(system, REQUESTS, partial(request, harness, system, running))
        for system in harness.systems:
            harness.sample(system, (RESIDENT_LOADED,), partial(weigh, system, running))
        for measure, how in ((STOP_GAP, signal.SIGTERM), (KILL_GAP, signal.SIGKILL)):
            victims = {system.name: iter(BROKERS) for system in harness.systems}
            for system in harness.turns():
                victim = next(victims[system.name])
                harness.sample(system, (measure,), partial(gap, harness, system, running, measure, victim, how))
    finally:
        for cluster in running.values():
            cluster.stop()
    # Once each, and one after the other: fifteen thousand replicas take their time, and twice as many their room.
    for system in harness.systems:
        harness.sample(system, (IDLE_CPU, FAILOVER), partial(hold_partitions, harness, system))


def make_ready(harness: Harness, system: System, running: Clusters) -> Mapping[str, float]:
    """A new cluster, which stays for what follows in the place of the one before."""
    if system.name in running:
        running.pop(system.name).stop()
    cluster = running[system.name] = clusters.start(system, harness.new_home(system))
    return {READY.key: cluster.started_s}


def of(system: System, running: Clusters) -> Cluster:
    if system.name not in running:
        raise NotMeasured(f"{system.name} has no cluster that runs")
    return running[system.name]


@contextlib.contextmanager
def replicated_topic(harness: Harness, cluster: Cluster, partitions: int) -> Iterator[str]:
    name = harness.new_name()
    topics.create(cluster.address, name, partitions, len(BROKERS))
    try:
        yield name
    finally:
        with contextlib.suppress(NotMeasured):
            topics.delete(cluster.address, name)


def warm_up(harness: Harness, system: System, running: Clusters) -> None:
    """Long, because three cold JVMs share the processors."""
    produce(harness, system, running)
    for _ in range(harness.scaled(3, 1)):
        request(harness, system, running)


def produce(harness: Harness, system: System, running: Clusters) -> Mapping[str, float]:
    cluster = of(system, running)
    records = harness.scaled(PRODUCE_CASE.records, PRODUCE_CASE.records // QUICK_DIVISOR)
    with replicated_topic(harness, cluster, 4) as topic:
        cpu_before_s = cluster.cpu_s()
        mb_s = performance_tool(harness, cluster.address, topic, records, PRODUCE_CASE)
        cpu_s = cluster.cpu_s() - cpu_before_s
    rate, cpu = PRODUCE
    return {rate.key: mb_s, cpu.key: cpu_s / (records * PRODUCE_CASE.record_bytes / 1e9)}


def request(harness: Harness, system: System, running: Clusters) -> Mapping[str, float]:
    cluster = of(system, running)
    with replicated_topic(harness, cluster, 4) as topic:
        cpu_before_s = cluster.cpu_s()
        flags = {"connections": 32, "acks": -1, "seconds": harness.scaled(5, 2)}
        seen = harness.load_at(cluster.first_address, "produce", topic, **flags)
        cpu_s = cluster.cpu_s() - cpu_before_s
    figures = (seen["per_second"], seen["p50_ms"], seen["p99_ms"], cpu_s / seen["requests"] * 1e6)
    return {measure.key: figure for measure, figure in zip(REQUESTS, figures, strict=True)}


def weigh(system: System, running: Clusters) -> Mapping[str, float]:
    return {RESIDENT_LOADED.key: of(system, running).resident_mb()}


def gap(
    harness: Harness, system: System, running: Clusters, measure: Measure, victim: int, how: signal.Signals
) -> Mapping[str, float]:
    """The longest gap between acknowledgements while a broker is ended under load; it is back when this returns."""
    cluster = of(system, running)
    with replicated_topic(harness, cluster, len(BROKERS)) as topic:
        command = harness.client_command("acknowledgements", cluster.address, topic, len(BROKERS))
        seen = during(command, lambda: cluster.end(victim, how))
        cluster.heal(victim)
    return {measure.key: seen["gap_s"]}


def during(command: list[str], act: Callable[[], None]) -> dict[str, float]:
    """What a client saw that said `go`, and then was told that something was done."""
    client = processes.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert client.stdin is not None
        assert client.stdout is not None
        line = processes.read_line(client.stdout, client, LOAD_TIMEOUT_S)
        if line.strip() != "go":
            processes.read_json(line)
        client.stdin.write("now\n")
        client.stdin.flush()
        act()
        return processes.read_json(processes.read_line(client.stdout, client, LOAD_TIMEOUT_S))
    finally:
        processes.stop(client)


def hold_partitions(harness: Harness, system: System) -> Mapping[str, float]:
    names = [f"many-{number}" for number in range(harness.scaled(PARTITIONS, PARTITIONS // 5) // TOPIC_PARTITIONS)]
    cluster = clusters.start(system, harness.new_home(system))
    try:
        for name in names:
            topics.create(cluster.address, name, TOPIC_PARTITIONS, len(BROKERS))
        time.sleep(SETTLE_S)
        cpu_before_s, began = cluster.cpu_s(), time.monotonic()
        time.sleep(harness.scaled(15, 6))
        percent = (cluster.cpu_s() - cpu_before_s) / (time.monotonic() - began) * 100
        return {IDLE_CPU.key: percent, FAILOVER.key: fail_over(cluster, names)}
    finally:
        cluster.stop()


def fail_over(cluster: Cluster, names: list[str]) -> float:
    """Kill a broker; how long until each partition has another leader, and that one answers."""
    victim = BROKERS[-1]
    address = ",".join(f"127.0.0.1:{port}" for broker, port in cluster.ports.items() if broker != victim)
    admin = topics.connect(address)
    waiting = list(names)
    began = time.monotonic()
    cluster.end(victim, signal.SIGKILL)
    while waiting:
        if time.monotonic() - began > LOAD_TIMEOUT_S:
            raise NotMeasured(f"{len(waiting)} topics have partitions without a leader after {LOAD_TIMEOUT_S} s")
        is_led = not set(topics.leaders(admin, waiting[0]).values()) & {-1, victim}
        if is_led and topics.led(admin, waiting[0], TOPIC_PARTITIONS):
            waiting.pop(0)
        time.sleep(topics.POLL_S)
    return time.monotonic() - began
