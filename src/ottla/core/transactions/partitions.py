"""The partitions of a transaction: added by its producer, or by the broker that the producer writes to (KIP-890)."""

from __future__ import annotations

from ottla.core.coordination import Outcome, Ticket
from ottla.core.transactions.commands import AddPartitions, VerifyPartitions
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.table import TransactionTable, concurrent_transactions
from ottla.core.transactions.transaction import EPOCH_PER_TRANSACTION, PREPARED, extended
from ottla.model.errors import ErrorCode


def add_partitions(
    table: TransactionTable, command: AddPartitions, ticket: Ticket, now_ms: int
) -> Outcome[TransactionRecord]:
    records = _added(table, command, command.transaction_version, now_ms)
    return Outcome(records, [(ticket, None)])


def verify_partitions(
    table: TransactionTable, command: VerifyPartitions, ticket: Ticket, now_ms: int
) -> Outcome[TransactionRecord]:
    if command.add:
        records = _added(table, command, EPOCH_PER_TRANSACTION, now_ms)
        return Outcome(records, [(ticket, dict.fromkeys(sorted(command.partitions), ErrorCode.NONE))])
    known = table.find(command.transactional_id, command.producer_id, command.producer_epoch)
    if known.state in PREPARED:
        raise concurrent_transactions(command.transactional_id)
    answer = {
        partition: ErrorCode.NONE if partition in known.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in sorted(command.partitions)
    }
    return Outcome([], [(ticket, answer)])


def _added(
    table: TransactionTable, command: AddPartitions | VerifyPartitions, transaction_version: int, now_ms: int
) -> list[TransactionRecord]:
    known = table.find(command.transactional_id, command.producer_id, command.producer_epoch)
    if known.state in PREPARED:
        raise concurrent_transactions(command.transactional_id)
    if known.state is TransactionState.ONGOING and command.partitions <= known.partitions:
        return []
    table.check_can_record(transaction_version)
    return [extended(known, command.partitions, transaction_version, now_ms)]
