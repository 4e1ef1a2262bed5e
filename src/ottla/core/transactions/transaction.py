"""The life of a transactional id: which record follows which. Nothing here decides whether it may.

Theory of operation. What is known of a transactional id is its last record, whole. Each function takes that record and
gives the next one:

    EMPTY, COMPLETE_* --extended--> ONGOING --ended, fenced--> PREPARE_* --completed--> COMPLETE_*
    anything but ONGOING and PREPARE_* --renewed--> EMPTY

The decision to commit or abort is PREPARE_*: once it is committed it stands, and markers are written until they are in
every partition. Epochs: a producer that is replaced, timed out, or that ends a transaction with version 2 of the
protocol gets a higher epoch. The markers of PREPARE_* carry that higher epoch, so whatever the old one still sends is
refused by the logs. EPOCH_MAX is never given to a producer: there is always one left to fence with.

What an editor must keep true:
- `last_update_timestamp` never goes back, and that of a PREPARE_* record is higher than those of all records before it:
  it names the transaction.
- `previous_producer_id` is the producer id of the record before.
"""

from __future__ import annotations

from typing import Final

from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.model.ids import NO_PRODUCER_ID, TopicPartition

EPOCH_MAX: Final = 32_767
EPOCH_OF_PRODUCERS_MAX: Final = EPOCH_MAX - 1
RECORDS_WITH_HISTORY: Final = 1
"""The transaction version from which on a record says what ended the transaction before, and how."""
EPOCH_PER_TRANSACTION: Final = 2
"""The transaction version from which on every transaction has an epoch of its own."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
ENDED: Final = PREPARED | COMPLETE
IDLE: Final = COMPLETE | {TransactionState.EMPTY}
NEVER_WRITTEN: Final = frozenset({TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE})

STATE_NAMES: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
"""As the protocol spells them: PrepareCommit."""


def is_exhausted(epoch: int) -> bool:
    """Whether a producer with this epoch cannot get a higher one."""
    return epoch >= EPOCH_OF_PRODUCERS_MAX


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> TransactionRecord:
    return TransactionRecord(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        last_update_timestamp=now_ms,
    )


def renewed(
    known: TransactionRecord, producer_id: int, producer_epoch: int, timeout_ms: int, now_ms: int
) -> TransactionRecord:
    """A producer begins with this id and epoch."""
    return TransactionRecord(
        transactional_id=known.transactional_id,
        producer_id=producer_id,
        previous_producer_id=known.producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        last_update_timestamp=max(now_ms, known.last_update_timestamp),
    )


def extended(
    known: TransactionRecord, partitions: frozenset[TopicPartition], transaction_version: int, now_ms: int
) -> TransactionRecord:
    """The transaction, which may begin with it, has these partitions too."""
    ongoing = known.state is TransactionState.ONGOING
    return known._replace(
        state=TransactionState.ONGOING,
        previous_producer_id=known.producer_id,
        partitions=known.partitions | partitions if ongoing else partitions,
        start_timestamp=known.start_timestamp if ongoing else now_ms,
        last_update_timestamp=max(now_ms, known.last_update_timestamp),
        client_transaction_version=transaction_version,
    )


def ended(
    known: TransactionRecord, *, committed: bool, transaction_version: int, next_producer_id: int, now_ms: int
) -> list[TransactionRecord]:
    """Its producer ends the transaction. `next_producer_id` where the epochs of the present one are used up.

    A producer of version 2 may abort without having begun: it gets its new epoch.
    """
    epoch_step = 1 if transaction_version >= EPOCH_PER_TRANSACTION else 0
    return _prepared(known, committed, epoch_step, transaction_version, next_producer_id, now_ms)


def fenced(known: TransactionRecord, transaction_version: int, now_ms: int) -> list[TransactionRecord]:
    """The transaction is aborted, and its producer can do no more with the epoch that it has."""
    return _prepared(known, False, 1, transaction_version, NO_PRODUCER_ID, now_ms)


def _prepared(
    known: TransactionRecord,
    committed: bool,
    epoch_step: int,
    transaction_version: int,
    next_producer_id: int,
    now_ms: int,
) -> list[TransactionRecord]:
    ongoing = known.state is TransactionState.ONGOING
    prepared = known._replace(
        state=TransactionState.PREPARE_COMMIT if committed else TransactionState.PREPARE_ABORT,
        previous_producer_id=known.producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=min(known.producer_epoch + epoch_step, EPOCH_MAX),
        start_timestamp=known.start_timestamp if ongoing else now_ms,
        last_update_timestamp=max(now_ms, known.last_update_timestamp + 1),
        client_transaction_version=transaction_version,
    )
    return [prepared] if prepared.partitions else [prepared, completed(prepared, now_ms)]


def completed(prepared: TransactionRecord, now_ms: int) -> TransactionRecord:
    """Every partition has its marker."""
    committed = prepared.state is TransactionState.PREPARE_COMMIT
    producer_id, producer_epoch = identity_after(prepared)
    return prepared._replace(
        state=TransactionState.COMPLETE_COMMIT if committed else TransactionState.COMPLETE_ABORT,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=prepared.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        last_update_timestamp=max(now_ms, prepared.last_update_timestamp),
    )


def identity_after(prepared: TransactionRecord) -> tuple[int, int]:
    """The producer id and epoch once the transaction is complete."""
    if prepared.next_producer_id != NO_PRODUCER_ID:
        return prepared.next_producer_id, 0
    return prepared.producer_id, prepared.producer_epoch


def is_ended_epoch(known: TransactionRecord, producer_id: int, producer_epoch: int) -> bool:
    """Whether the present epoch came when the transaction with this id and epoch ended: who sends it repeats itself."""
    if known.client_transaction_version < EPOCH_PER_TRANSACTION:
        return False
    if known.producer_id == producer_id:
        return known.producer_epoch == producer_epoch + 1 and known.state in ENDED
    rotated = known.producer_epoch == 0 and producer_epoch == EPOCH_OF_PRODUCERS_MAX
    return rotated and known.previous_producer_id == producer_id and known.state in COMPLETE


def forgotten(transactional_id: str) -> TransactionRecord:
    return TransactionRecord(transactional_id=transactional_id, gone=True)
