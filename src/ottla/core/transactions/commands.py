"""What a transaction coordinator is asked, and what it answers. Names are the protocol's."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

from ottla.core.coordination import Command
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition


class ProducerInitialized(NamedTuple):
    """The id and epoch that a producer goes on with."""

    producer_id: int
    producer_epoch: int
    spare_used: bool = False


@dataclass(frozen=True, slots=True)
class InitProducerId(Command[ProducerInitialized]):
    """A producer begins, or goes on after an error and then says which id and epoch it has."""

    transactional_id: str
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    spare_producer_id: int = NO_PRODUCER_ID
    """An id that nobody has had, for use if one is needed; without it such a command is refused."""


@dataclass(frozen=True, slots=True)
class AddPartitions(Command[None]):
    """A transaction is about to write to these partitions; the first ones begin it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    transaction_version: int = 0
    """What the client can do: 2 means that each of its transactions has an epoch of its own."""


@dataclass(frozen=True, slots=True)
class VerifyPartitions(Command[dict[TopicPartition, ErrorCode]]):
    """Whether records for these partitions belong to the producer's transaction. With `add` they do from now on.

    The answer has NONE or TRANSACTION_ABORTABLE for each partition; every other refusal is an ApiError.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    add: bool


class TransactionEnded(NamedTuple):
    """The id and epoch for the next transaction."""

    producer_id: int
    producer_epoch: int
    spare_used: bool = False


@dataclass(frozen=True, slots=True)
class EndTxn(Command[TransactionEnded]):
    """Commit or abort. `transaction_version` 2: the client expects a new epoch for its next transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int = 0
    spare_producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class MarkersWritten(Command[None]):
    """Markers of a transaction are in these partitions, or will never be needed there.

    Made by `PendingMarkers.written`, which knows the transaction by when it was prepared: two transactions of an older
    client may have the same id and epoch.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    prepared_timestamp: int


class PendingMarkers(NamedTuple):
    """Markers to be written, each until it is acknowledged."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]
    """In a fixed order: markers are written in it, and a replay writes them in the same one."""
    transaction_version: int
    """2: the epoch is higher than that of the transaction's records, and a log may insist on it."""
    prepared_timestamp: int

    def written(self, partitions: Collection[TopicPartition]) -> MarkersWritten:
        """Says that these are done."""
        return MarkersWritten(
            self.transactional_id, self.producer_id, self.producer_epoch, partitions, self.prepared_timestamp
        )


@dataclass(frozen=True, slots=True)
class DescribeTransaction(Command[TransactionRecord]):
    """All that is known of a transactional id; TRANSACTIONAL_ID_NOT_FOUND."""

    transactional_id: str


class ListedTransaction(NamedTuple):
    """One transactional id in a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class ListTransactions(Command[list[ListedTransaction]]):
    """The transactional ids that pass every filter."""

    states: frozenset[TransactionState] | None = None
    producer_ids: frozenset[int] = frozenset()
    duration_ms: int = -1
    """Zero or more: those that began longer ago than this."""
    matches: Callable[[str], bool] | None = None
