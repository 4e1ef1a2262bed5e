"""One transaction coordinator: the transactional ids of one partition of `__transaction_state`.

Theory of operation. See `core/coordination.py` for what a shard is, `transaction.py` for the life of a transactional
id. Besides records and answers this shard has an effect: the markers of transactions that were decided.
`markers_due` gives each of them once; the driver writes them when the records that were appended so far are committed,
again and again until each is acknowledged, and tells with MarkersWritten. After a failover the new coordinator finds
the transaction prepared and gives its markers again, with the same id, epoch and outcome, so a log that has one already
takes the second for a repetition.

What an editor must keep true:
- A transaction begins only when every marker of the one before it is acknowledged.
- A tick gives the outcome of one timer that has something to write; `next_deadline_ms` says that there is more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from ottla.core.coordination import Checks, Command, Outcome, Ticket
from ottla.core.transactions.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    PendingMarkers,
    VerifyPartitions,
)
from ottla.core.transactions.ending import completion_due, end_txn, markers_written
from ottla.core.transactions.expiry import expiry_due, schedule_expiry, timeout_due
from ottla.core.transactions.init_producer import check_timeout, init_producer_id
from ottla.core.transactions.listing import describe_transaction, list_transactions
from ottla.core.transactions.partitions import add_partitions, verify_partitions
from ottla.core.transactions.records import TransactionRecord
from ottla.core.transactions.table import EXPIRY, TIMEOUT, TimerKey, TransactionTable
from ottla.core.transactions.transaction import EPOCH_PER_TRANSACTION
from ottla.model.configs.resolve import BrokerConfig

TICK_TIMERS_MAX: Final = 256

Decision: TypeAlias = Callable[[TransactionTable, Any, Ticket, int], Outcome[TransactionRecord]]

_DECISIONS: Final[dict[type[Command[Any]], Decision]] = {
    InitProducerId: init_producer_id,
    AddPartitions: add_partitions,
    VerifyPartitions: verify_partitions,
    EndTxn: end_txn,
    MarkersWritten: markers_written,
    DescribeTransaction: describe_transaction,
    ListTransactions: list_transactions,
}
CHECKS: Final[Checks] = {InitProducerId: check_timeout}


class TransactionShard:
    """The state machine of one partition. Implements `Shard[TransactionRecord]`."""

    __slots__ = ("table",)

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        transaction_version: Callable[[], int] = lambda: EPOCH_PER_TRANSACTION,
    ) -> None:
        self.table = TransactionTable(config, transaction_version)

    def decide(self, command: Command[Any], ticket: Ticket, now_ms: int) -> Outcome[TransactionRecord]:
        return _DECISIONS[type(command)](self.table, command, ticket, now_ms)

    def tick(self, now_ms: int) -> Outcome[TransactionRecord]:
        for _ in range(TICK_TIMERS_MAX):
            key = self.table.timers.pop_due(now_ms)
            if key is None:
                break
            outcome = self._due(key, now_ms)
            if outcome.records:
                return outcome
        return Outcome()

    def _due(self, key: TimerKey, now_ms: int) -> Outcome[TransactionRecord]:
        if key == EXPIRY:
            return expiry_due(self.table, now_ms)
        due = timeout_due if key[0] == TIMEOUT else completion_due
        return due(self.table, key[1], now_ms)

    def next_deadline_ms(self) -> int | None:
        return self.table.timers.next_deadline_ms()

    def replay(self, record: TransactionRecord, producer_id: int) -> None:
        """No record of a coordinator belongs to a transaction itself."""
        self.table.replay(record)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """Nothing here is written in a transaction."""

    def loaded(self, now_ms: int) -> Outcome[TransactionRecord]:
        schedule_expiry(self.table, now_ms)
        return Outcome()

    def markers_due(self) -> list[PendingMarkers]:
        """Markers that have to be written since this was asked last; after `loaded` those of all prepared transactions.

        They rest on records which may not be committed yet: nobody writes a marker before they are.
        """
        return self.table.take_newly_prepared()
