"""The fact that `__transaction_state` is made of: what is known of a transactional id."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from ottla.model.ids import TopicPartition


class TransactionState(IntEnum):
    """Where a transactional id stands, with the codes of Kafka's records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


class TransactionRecord(NamedTuple):
    """TransactionLogValue: all that is known of a transactional id; replaces what was known before.

    With `gone` it is a tombstone: the id has been forgotten.
    """

    transactional_id: str
    producer_id: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1
    producer_epoch: int = -1
    next_producer_epoch: int = -1
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_timestamp: int = -1
    start_timestamp: int = -1
    client_transaction_version: int = 0
    gone: bool = False
