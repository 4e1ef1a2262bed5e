"""DescribeTransactions and ListTransactions: what a coordinator knows, to look at."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.core.coordination import Outcome, Ticket
from ottla.core.transactions.commands import DescribeTransaction, ListedTransaction, ListTransactions
from ottla.core.transactions.records import TransactionRecord
from ottla.core.transactions.table import TransactionTable
from ottla.model.errors import ApiError, ErrorCode


def describe_transaction(
    table: TransactionTable, command: DescribeTransaction, ticket: Ticket, _now_ms: int
) -> Outcome[TransactionRecord]:
    known = table.transactions.get(command.transactional_id)
    if known is None:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"Transactional id {command.transactional_id!r} is not known."
        )
    return Outcome([], [(ticket, known)])


def list_transactions(
    table: TransactionTable, command: ListTransactions, ticket: Ticket, now_ms: int
) -> Outcome[TransactionRecord]:
    listed = [
        ListedTransaction(known.transactional_id, known.producer_id, known.state)
        for known in _filtered(table, command, now_ms)
    ]
    return Outcome([], [(ticket, listed)])


def _filtered(table: TransactionTable, command: ListTransactions, now_ms: int) -> Iterator[TransactionRecord]:
    """The filter by duration is Kafka's: what never had a transaction counts as having begun very long ago."""
    states, producer_ids, matches = command.states, command.producer_ids, command.matches
    for known in table.transactions.values():
        if producer_ids and known.producer_id not in producer_ids:
            continue
        if states is not None and known.state not in states:
            continue
        if command.duration_ms >= 0 and now_ms - known.start_timestamp <= command.duration_ms:
            continue
        if matches is None or matches(known.transactional_id):
            yield known
