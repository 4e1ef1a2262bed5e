"""EndTxn: the decision to commit or abort, and what follows when its markers are written.

Theory of operation. Two flows. An older client keeps its epoch through all its transactions: an EndTxn is good for
whatever transaction of that epoch is going on. With version 2 (KIP-890) the decision raises the epoch, so that an
EndTxn names one transaction; if it comes again it has an epoch one too low, and is answered as done, or as being done,
for as long as that transaction is the last one. A version 2 client may abort without having begun.

The client chooses the flow, by what it has heard of the cluster's `transaction.version`. At level 0 nothing of version
2 can be written down: a client that has not heard of that is refused, and its transaction ends when its time is over.

The decision is a PREPARE_* record. When it is committed the driver writes markers; MarkersWritten tells of them, and
with the last one the transaction is COMPLETE_*. If that record cannot be written it is tried again after a while: the
markers are out, so there is no other way to go.
"""

from __future__ import annotations

from typing import Final, NoReturn

from ottla.core.coordination import Outcome, Ticket
from ottla.core.transactions.commands import EndTxn, MarkersWritten, TransactionEnded
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.table import (
    COMPLETION,
    TransactionTable,
    concurrent_transactions,
    no_spare_producer_id,
    not_mapped,
    producer_fenced,
)
from ottla.core.transactions.transaction import (
    COMPLETE,
    EPOCH_MAX,
    EPOCH_PER_TRANSACTION,
    PREPARED,
    STATE_NAMES,
    completed,
    ended,
    identity_after,
    is_ended_epoch,
    is_exhausted,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_ID

COMPLETION_RETRY_MS: Final = 500

_COMMITS: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT})


def end_txn(table: TransactionTable, command: EndTxn, ticket: Ticket, now_ms: int) -> Outcome[TransactionRecord]:
    if command.transaction_version < EPOCH_PER_TRANSACTION:
        return _end_with_same_epoch(table, command, ticket, now_ms)
    return _end_with_next_epoch(table, command, ticket, now_ms)


def _end_with_same_epoch(
    table: TransactionTable, command: EndTxn, ticket: Ticket, now_ms: int
) -> Outcome[TransactionRecord]:
    known = table.find(command.transactional_id, command.producer_id, command.producer_epoch)
    if known.state is TransactionState.ONGOING:
        return _end(known, command, ticket, now_ms)
    if known.state is TransactionState.EMPTY:
        _refuse(known, command)
    return _as_before(known, command, ticket)


def _end_with_next_epoch(
    table: TransactionTable, command: EndTxn, ticket: Ticket, now_ms: int
) -> Outcome[TransactionRecord]:
    known = table.known(command.transactional_id)
    if is_ended_epoch(known, command.producer_id, command.producer_epoch):
        return _as_before(known, command, ticket)
    table.check_not_early(known, command.producer_id)
    if known.producer_id != command.producer_id:
        raise not_mapped(command.transactional_id)
    if known.producer_epoch != command.producer_epoch or known.state in PREPARED:
        raise producer_fenced(command.transactional_id)
    if known.state is not TransactionState.ONGOING and command.committed:
        _refuse(known, command)
    table.check_can_record(command.transaction_version)
    return _end(known, command, ticket, now_ms)


def _end(known: TransactionRecord, command: EndTxn, ticket: Ticket, now_ms: int) -> Outcome[TransactionRecord]:
    next_producer_id = NO_PRODUCER_ID
    if command.transaction_version >= EPOCH_PER_TRANSACTION and is_exhausted(known.producer_epoch):
        next_producer_id = command.spare_producer_id
        if next_producer_id == NO_PRODUCER_ID:
            raise no_spare_producer_id()
    records = ended(
        known,
        committed=command.committed,
        transaction_version=command.transaction_version,
        next_producer_id=next_producer_id,
        now_ms=now_ms,
    )
    spare_used = next_producer_id != NO_PRODUCER_ID
    answer = TransactionEnded(*identity_after(records[0]), spare_used=spare_used)
    return Outcome(records, [(ticket, answer)])


def _as_before(known: TransactionRecord, command: EndTxn, ticket: Ticket) -> Outcome[TransactionRecord]:
    """The transaction was ended already, or is being ended: the same once more is fine."""
    if (known.state in _COMMITS) != command.committed:
        _refuse(known, command)
    if known.state not in COMPLETE:
        raise concurrent_transactions(command.transactional_id)
    if known.producer_epoch == EPOCH_MAX:
        raise producer_fenced(command.transactional_id)
    return Outcome([], [(ticket, TransactionEnded(known.producer_id, known.producer_epoch))])


def _refuse(known: TransactionRecord, command: EndTxn) -> NoReturn:
    verb = "commit" if command.committed else "abort"
    raise ApiError(
        ErrorCode.INVALID_TXN_STATE,
        f"There is nothing to {verb} for {command.transactional_id!r}, which is in state {STATE_NAMES[known.state]}.",
    )


def markers_written(
    table: TransactionTable, command: MarkersWritten, ticket: Ticket, now_ms: int
) -> Outcome[TransactionRecord]:
    """What is told of any transaction but the one that is prepared now has no meaning any more."""
    done: list[tuple[Ticket, None]] = [(ticket, None)]
    known = table.transactions.get(command.transactional_id)
    if known is None or known.state not in PREPARED or not _is_about(command, known):
        return Outcome([], list(done))
    unmarked = table.unmarked[command.transactional_id]
    unmarked.difference_update(command.partitions)
    if unmarked:
        return Outcome([], list(done))
    outcome = _complete(table, known, now_ms)
    outcome.answers += done
    return outcome


def _is_about(command: MarkersWritten, known: TransactionRecord) -> bool:
    return (command.producer_id, command.producer_epoch, command.prepared_timestamp) == (
        known.producer_id,
        known.producer_epoch,
        known.last_update_timestamp,
    )


def completion_due(table: TransactionTable, transactional_id: str, now_ms: int) -> Outcome[TransactionRecord]:
    """Every marker is written, or none was needed, and the record that says so is not."""
    known = table.transactions.get(transactional_id)
    if known is None or known.state not in PREPARED or table.unmarked[transactional_id]:
        return Outcome()
    return _complete(table, known, now_ms)


def _complete(table: TransactionTable, known: TransactionRecord, now_ms: int) -> Outcome[TransactionRecord]:
    outcome: Outcome[TransactionRecord]

    def again(_code: ErrorCode, failed_ms: int) -> Outcome[TransactionRecord]:
        table.timers.set((COMPLETION, known.transactional_id), failed_ms + COMPLETION_RETRY_MS)
        return Outcome([], list(outcome.answers))

    outcome = Outcome([completed(known, now_ms)], not_written=again)
    return outcome
