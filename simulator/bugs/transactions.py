"""Bugs of transactions: who may write, who may end them, and how often."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from ottla.core.coordination import Outcome, Ticket
from ottla.core.transactions import ending
from ottla.core.transactions.commands import EndTxn
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.table import TransactionTable
from ottla.log.producer_state import ProducerStates
from ottla.runtime.marker_writing import Marker, MarkerWriter
from ottla.wire.batch import read_header
from ottla.wire.transaction_marker import build_marker
from simulator.bugs.bug import Bug, Patches

SHARED: Final[dict[str, Any]] = {
    "nodes": 1,
    "replicas": 1,
    "partitions": 3,
    "seconds": 60,
    "seconds_between_faults": 6.0,
    "seconds_between_sends": 0.5,
    "seconds_between_transactions": 0.3,
    "transactional_producers": 3,
    "readers": 2,
}
"""Two producers with the same transactional id, who take it from one another."""
LATE_SECONDS: Final = 0.4


def _anybody_may_end(patches: Patches) -> None:
    original = ending._end_with_next_epoch

    def end(table: TransactionTable, command: EndTxn, ticket: Ticket, now_ms: int) -> Outcome[TransactionRecord]:
        known = table.known(command.transactional_id)
        if known.producer_id == command.producer_id and known.state is TransactionState.ONGOING:
            return ending._end(known, command, ticket, now_ms)
        return original(table, command, ticket, now_ms)

    patches.put(ending, "_end_with_next_epoch", end)


def _markers_are_written_twice(patches: Patches) -> None:
    original = MarkerWriter._append

    def append(self: MarkerWriter, marker: Marker, tp: Any, now_ms: int) -> Any:
        found = original(self, marker, tp, now_ms)
        partition = found[0]

        def again() -> None:
            if partition.leads:
                batch = build_marker(
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.coordinator_epoch,
                    committed=marker.committed,
                    timestamp=now_ms,
                )
                partition.append(memoryview(batch), read_header(batch), now_ms)

        asyncio.get_running_loop().call_later(LATE_SECONDS, again)
        return found

    patches.put(MarkerWriter, "_append", append)
    patches.put(ProducerStates, "check_marker", lambda self, *args: None)


def _zombies_may_write(patches: Patches) -> None:
    def find(self: TransactionTable, transactional_id: str, producer_id: int, producer_epoch: int) -> TransactionRecord:
        return self.known(transactional_id)

    def begin_verification(
        self: ProducerStates, producer_id: int, epoch: int, sequence: int, now_ms: int, *, begins_anew: bool
    ) -> Any:
        return self.verifications.begin(producer_id, epoch, sequence, now_ms, begins_anew=begins_anew)

    patches.put(TransactionTable, "find", find)
    patches.put(ProducerStates, "begin_verification", begin_verification)
    patches.put(ProducerStates, "_check_new_epoch", lambda self, producer, epoch, base_sequence: None)


TRANSACTIONS: Final = (
    Bug("anybody may end a transaction", "EndTxn is not fenced", 10, _anybody_may_end, SHARED),
    Bug("markers are written twice", "a late one ends the next transaction", 6, _markers_are_written_twice, SHARED),
    Bug("zombies may write", "old epochs are not refused", 10, _zombies_may_write, SHARED),
)
