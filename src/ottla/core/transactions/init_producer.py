"""InitProducerId for a transactional id: who its producer is from now on.

Every earlier producer with the id is fenced by a higher epoch, or by a new producer id when the epochs are used up. A
transaction that is going on is aborted first; the caller hears CONCURRENT_TRANSACTIONS until that is done, and gets an
epoch of its own when it asks again. A producer that goes on after an error names the id and epoch which it has
(KIP-360): it is served if nobody came after it, and if it merely repeats itself it gets what it got.

Stricter than Kafka in one point: a producer that names an outdated epoch never aborts a transaction that is going on.
"""

from __future__ import annotations

from ottla.core.coordination import Outcome, Ticket
from ottla.core.transactions.commands import InitProducerId, ProducerInitialized
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.table import (
    Identity,
    TransactionTable,
    concurrent_transactions,
    no_spare_producer_id,
    producer_fenced,
)
from ottla.core.transactions.transaction import (
    EPOCH_MAX,
    PREPARED,
    created,
    fenced,
    is_ended_epoch,
    is_exhausted,
    renewed,
)
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_ID


def init_producer_id(
    table: TransactionTable, command: InitProducerId, ticket: Ticket, now_ms: int
) -> Outcome[TransactionRecord]:
    check_timeout(command, table.config())
    known = table.transactions.get(command.transactional_id)
    if known is None:
        return _create(command, ticket, now_ms)
    table.check_not_early(known, command.producer_id)
    recovers = command.producer_id != NO_PRODUCER_ID
    if recovers and not _is_of_id(known, command):
        raise producer_fenced(command.transactional_id)
    if known.state in PREPARED:
        raise concurrent_transactions(command.transactional_id)
    if known.state is TransactionState.ONGOING:
        if recovers and not _is_current(known, command):
            raise producer_fenced(command.transactional_id)
        refusal = concurrent_transactions(command.transactional_id)
        return Outcome(fenced(known, table.transaction_version(), now_ms), [(ticket, refusal)])
    return _renew(table, known, command, ticket, now_ms)


def check_timeout(command: InitProducerId, config: BrokerConfig) -> None:
    timeout_ms, most_ms = command.transaction_timeout_ms, config.transaction_max_timeout_ms
    if not 0 < timeout_ms <= most_ms:
        raise ApiError(
            ErrorCode.INVALID_TRANSACTION_TIMEOUT,
            f"A transaction timeout of {timeout_ms} ms is not between 1 and transaction.max.timeout.ms, {most_ms}.",
        )


def _create(command: InitProducerId, ticket: Ticket, now_ms: int) -> Outcome[TransactionRecord]:
    """A producer that recovers may find that its transactional id was forgotten: it begins anew."""
    spare = _spare(command)
    record = created(command.transactional_id, spare, command.transaction_timeout_ms, now_ms)
    return Outcome([record], [(ticket, ProducerInitialized(spare, 0, spare_used=True))])


def _is_of_id(known: TransactionRecord, command: InitProducerId) -> bool:
    """The epoch is looked at later. An id that was replaced counts if it was replaced for want of epochs."""
    if command.producer_id == known.producer_id:
        return True
    return command.producer_id == known.previous_producer_id and is_exhausted(command.producer_epoch)


def _is_current(known: TransactionRecord, command: InitProducerId) -> bool:
    return (command.producer_id, command.producer_epoch) == (known.producer_id, known.producer_epoch)


def _renew(
    table: TransactionTable, known: TransactionRecord, command: InitProducerId, ticket: Ticket, now_ms: int
) -> Outcome[TransactionRecord]:
    now = Identity(known.producer_id, known.producer_epoch)
    if command.producer_id == NO_PRODUCER_ID:
        next_identity = _after(now, command)
        table.recoveries.pop(command.transactional_id, None)
    elif _is_current(known, command):
        next_identity = _after(now, command)
        table.recoveries[command.transactional_id] = (now, next_identity)
    elif _is_repeated(table, known, command):
        next_identity = now if now.producer_epoch < EPOCH_MAX else _after(now, command)
    else:
        raise producer_fenced(command.transactional_id)
    record = renewed(known, *next_identity, command.transaction_timeout_ms, now_ms)
    spare_used = next_identity.producer_id != now.producer_id
    return Outcome([record], [(ticket, ProducerInitialized(*next_identity, spare_used=spare_used))])


def _is_repeated(table: TransactionTable, known: TransactionRecord, command: InitProducerId) -> bool:
    """Whether the producer is the one that the present epoch was made for, and may not have heard of it."""
    named = Identity(command.producer_id, command.producer_epoch)
    if table.recoveries.get(command.transactional_id) == (named, (known.producer_id, known.producer_epoch)):
        return True
    return is_ended_epoch(known, command.producer_id, command.producer_epoch)


def _after(now: Identity, command: InitProducerId) -> Identity:
    if is_exhausted(now.producer_epoch):
        return Identity(_spare(command), 0)
    return Identity(now.producer_id, now.producer_epoch + 1)


def _spare(command: InitProducerId) -> int:
    if command.spare_producer_id == NO_PRODUCER_ID:
        raise no_spare_producer_id()
    return command.spare_producer_id
