"""One run: a cluster, its clients, the faults, then the full read and the judgement."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chaos.clients.bulk import BulkProducer, check_bulk
from chaos.clients.client import Client
from chaos.clients.copier import GROUP as COPIERS
from chaos.clients.copier import Copier
from chaos.clients.final_read import committed_offsets, read_all
from chaos.clients.group_reader import GroupReader
from chaos.clients.idempotent import IdempotentProducer
from chaos.clients.transactional import TransactionalProducer
from chaos.cluster import HASTY, Cluster
from chaos.copies import check_copies
from chaos.faults import IN_SYNC_SECONDS_MAX, Fault, plan
from chaos.recording import Clock, Gap, Recording
from chaos.waiting import TooLate
from simulator.checkers.anomalies import check_history
from simulator.checkers.groups import check_groups
from simulator.findings import Finding, Findings
from simulator.history import Place

PARTITIONS: Final = 3
ORDERS: Final = [Place("orders", partition) for partition in range(PARTITIONS)]
COPIES: Final = [Place("copies", partition) for partition in range(PARTITIONS)]
BULK: Final = [Place("bulk", partition) for partition in range(PARTITIONS)]
CALM_SECONDS: Final = 1.0
"""Without faults, at the beginning and at the end."""


@dataclass(slots=True)
class Result:
    """What a run has shown."""

    seed: int
    acknowledged: int = 0
    acknowledged_in_bulk: int = 0
    copied: int = 0
    transactions: int = 0
    longest_gap: Gap = field(default_factory=lambda: Gap(0.0, 0.0))
    faults: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)

    def figure(self) -> str:
        return (
            f"chaos: seed {self.seed}, {self.acknowledged} records acknowledged, {self.acknowledged_in_bulk} more in "
            f"bulk, {self.transactions} transactions committed, {self.copied} records copied exactly once, "
            f"{len(self.faults)} faults, longest gap between acknowledgements {self.longest_gap.seconds:.2f} s, "
            f"anomalies {len(self.findings)}"
        )


class ChaosRun:
    """A run of a seed. `say` hears of each fault."""

    def __init__(
        self, seed: int, seconds: float, directory: Path, say: Callable[[str], None], *, faults_min: int = 0
    ) -> None:
        self._seconds = seconds
        self._faults_min = faults_min
        """So many come in any case: where other work slows the machine down, one fault can take all the time."""
        self._say = say
        self._clock = Clock()
        self._recording = Recording(self._clock)
        self._bulk = Recording(self._clock)
        self._findings = Findings(lambda: self._clock.now_us)
        self._cluster = Cluster(directory, config=HASTY)
        self._result = Result(seed)
        self._clients = self._build_clients(seed)
        self._longest_gap = Gap(0.0, 0.0)

    def _build_clients(self, seed: int) -> list[Client]:
        servers, recording = self._cluster.bootstrap_servers, self._recording
        return [
            *(IdempotentProducer(f"producer-{n}", servers, recording, seed, places=ORDERS) for n in range(2)),
            BulkProducer("bulk", servers, self._bulk, seed, places=BULK),
            *(TransactionalProducer(f"ledger-{n}", servers, recording, seed, places=ORDERS) for n in range(2)),
            *(Copier(f"copier-{n}", servers, recording, seed, source="orders", places=COPIES) for n in range(2)),
            *(GroupReader(f"reader-{n}", servers, recording, seed, group="readers", topic="orders") for n in range(2)),
        ]

    def run(self) -> Result:
        try:
            self._cluster.start()
            for topic in ("orders", "copies", "bulk"):
                self._cluster.create_topic(topic, PARTITIONS)
            for client in self._clients:
                client.start()
            time.sleep(CALM_SECONDS)
            self._fault_after_fault()
            self._end_clients()
            self._read_back()
        except TooLate as error:
            self._findings.add("liveness", str(error))
        finally:
            self._cluster.close()
        return self._judged()

    def _fault_after_fault(self) -> None:
        end = time.monotonic() + self._seconds
        for fault in plan(self._result.seed, len(self._cluster.nodes), self._seconds):
            if time.monotonic() >= end and len(self._result.faults) >= self._faults_min:
                break
            self._strike(fault)
            time.sleep(fault.rest_seconds)
        took = self._cluster.wait_in_sync(IN_SYNC_SECONDS_MAX)
        self._say(f"{self._clock.seconds:7.2f} s: calm, all replicas in sync after {took:.2f} s")
        time.sleep(CALM_SECONDS)

    def _strike(self, fault: Fault) -> None:
        began = self._clock.seconds
        self._say(f"{began:7.2f} s: {fault}")
        self._result.faults.append(f"{began:.2f} s: {fault}")
        fault.happen(self._cluster)
        gap = self._recording.longest_gap(ORDERS, began)
        self._say(f"{self._clock.seconds:7.2f} s: undone; longest gap {gap.seconds:.2f} s from {gap.began:.2f} s on")

    def _end_clients(self) -> None:
        self._longest_gap = self._recording.longest_gap(ORDERS)
        for client in self._clients:
            client.stop()
        for client in self._clients:
            if not client.join():
                self._findings.add("liveness", f"{client.name} did not come to its end; it is at\n{client.where()}")
            if client.crash:
                self._findings.add("crash", f"{client.name}: {client.crash}")

    def _read_back(self) -> None:
        servers, recording = self._cluster.bootstrap_servers, self._recording
        for committed_only in (True, False):
            read_all(servers, recording, ORDERS + COPIES, committed_only=committed_only)
        recording.copied_to = committed_offsets(servers, COPIERS, ORDERS)
        check_history(recording, self._findings)
        check_groups(recording, self._findings)
        check_copies(recording, self._findings)
        read_all(servers, self._bulk, BULK, committed_only=False)
        check_bulk(self._bulk, self._findings)

    def _judged(self) -> Result:
        result, recording = self._result, self._recording
        for reason, count in recording.failures.items():
            # Nothing that happens to brokers excuses an idempotent producer's failure.
            if reason.startswith("producer-"):
                self._findings.add("an idempotent producer failed", f"{count} times {reason}")
        result.acknowledged = recording.acknowledged
        result.acknowledged_in_bulk = self._bulk.acknowledged
        result.copied = sum(len(recording.final.get((place, True), ())) for place in COPIES)
        result.transactions = sum(transaction.outcome.name == "OK" for transaction in recording.transactions)
        result.longest_gap = self._longest_gap
        result.findings = self._findings.found
        result.failures = recording.failures | self._bulk.failures
        return result
