"""What one transaction coordinator knows: its transactional ids, whose markers are not written yet, what is due when.

`transactions` is what the records say, and `replay` alone changes it. Everything else follows from it and may be lost:
partitions whose marker is written are marked once more after a restart, which a log takes for what it is, a repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from ottla.core.timers import Timers
from ottla.core.transactions.commands import PendingMarkers
from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.core.transactions.transaction import (
    EPOCH_PER_TRANSACTION,
    IDLE,
    NEVER_WRITTEN,
    PREPARED,
    RECORDS_WITH_HISTORY,
)
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, TopicPartition

TimerKey: TypeAlias = tuple[str, str]
"""The name of what is due, then whom it is about."""
TIMEOUT: Final = "timeout"
COMPLETION: Final = "completion"
EXPIRY: Final[TimerKey] = ("expiry", "")


class Identity(NamedTuple):
    """Who a producer is to the logs."""

    producer_id: int
    producer_epoch: int


class TransactionTable:
    """The state of one shard."""

    __slots__ = (
        "_newly_prepared",
        "config",
        "idle",
        "recoveries",
        "timers",
        "transaction_version",
        "transactions",
        "unmarked",
    )

    def __init__(self, config: Callable[[], BrokerConfig], transaction_version: Callable[[], int]) -> None:
        self.config = config
        self.transaction_version = transaction_version
        """The level that the cluster uses of the feature of this name."""
        self.transactions: dict[str, TransactionRecord] = {}
        self.idle: dict[str, int] = {}
        """Ids without a transaction, with their last update; the one that was idle longest comes first."""
        self.unmarked: dict[str, set[TopicPartition]] = {}
        """For each prepared transaction the partitions that no marker is known to be in."""
        self.recoveries: dict[str, tuple[Identity, Identity]] = {}
        """Who asked to go on after an error, and as whom it went on: the answer to a repeated request."""
        self.timers: Timers[TimerKey] = Timers()
        self._newly_prepared: dict[str, None] = {}

    def find(self, transactional_id: str, producer_id: int, producer_epoch: int) -> TransactionRecord:
        """The transactional id of exactly this producer. Before any of this is known nothing else is looked at."""
        known = self.known(transactional_id)
        self.check_not_early(known, producer_id)
        if known.producer_id != producer_id:
            raise not_mapped(transactional_id)
        if known.producer_epoch != producer_epoch:
            raise producer_fenced(transactional_id)
        return known

    def known(self, transactional_id: str) -> TransactionRecord:
        known = self.transactions.get(transactional_id)
        if known is None:
            raise not_mapped(transactional_id)
        return known

    @staticmethod
    def check_not_early(known: TransactionRecord, producer_id: int) -> None:
        """Raise if the producer goes on under the id that it was given for its next transaction, while the one before
        is still being ended. The id becomes known with the end of that one."""
        if known.state in PREPARED and producer_id == known.next_producer_id != NO_PRODUCER_ID:
            raise concurrent_transactions(known.transactional_id)

    def check_can_record(self, transaction_version: int) -> None:
        """Raise if a transaction of a client of this version could not be written down: the level forbids it."""
        if transaction_version >= EPOCH_PER_TRANSACTION and self.transaction_version() < RECORDS_WITH_HISTORY:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "The cluster's transaction.version is 0, and this is a request of version 2: begin the producer anew.",
            )

    def replay(self, record: TransactionRecord) -> None:
        """A record replaces all that was known of its id."""
        transactional_id = record.transactional_id
        if record.state in NEVER_WRITTEN:
            return
        self.idle.pop(transactional_id, None)
        if record.gone:
            self.recoveries.pop(transactional_id, None)
            before = self.transactions.pop(transactional_id, None)
        else:
            before = self.transactions.get(transactional_id)
            self.transactions[transactional_id] = record
            if record.state in IDLE:
                self.idle[transactional_id] = record.last_update_timestamp
        if before is not None and before.state not in IDLE:
            self._left(before, record)
        if not record.gone:
            self._entered(record)

    def _left(self, before: TransactionRecord, record: TransactionRecord) -> None:
        transactional_id = before.transactional_id
        if before.state is not TransactionState.ONGOING:
            self.unmarked.pop(transactional_id, None)
            self._newly_prepared.pop(transactional_id, None)
            self.timers.cancel((COMPLETION, transactional_id))
        elif record.state is not TransactionState.ONGOING or record.gone:
            self.timers.cancel((TIMEOUT, transactional_id))

    def _entered(self, record: TransactionRecord) -> None:
        transactional_id = record.transactional_id
        if record.state is TransactionState.ONGOING:
            if (TIMEOUT, transactional_id) not in self.timers:
                self.timers.set((TIMEOUT, transactional_id), record.start_timestamp + record.timeout_ms + 1)
        elif record.state in PREPARED:
            self.unmarked[transactional_id] = set(record.partitions)
            self._newly_prepared[transactional_id] = None
            if not record.partitions:
                self.timers.set((COMPLETION, transactional_id), record.last_update_timestamp)

    def take_newly_prepared(self) -> list[PendingMarkers]:
        """The markers of transactions that were prepared since this was asked last."""
        if not self._newly_prepared:
            return []
        pending = [
            self._markers(self.transactions[transactional_id], tuple(sorted(unmarked)))
            for transactional_id in self._newly_prepared
            if (unmarked := self.unmarked[transactional_id])
        ]
        self._newly_prepared.clear()
        return pending

    @staticmethod
    def _markers(prepared: TransactionRecord, partitions: tuple[TopicPartition, ...]) -> PendingMarkers:
        return PendingMarkers(
            transactional_id=prepared.transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            committed=prepared.state is TransactionState.PREPARE_COMMIT,
            partitions=partitions,
            transaction_version=prepared.client_transaction_version,
            prepared_timestamp=prepared.last_update_timestamp,
        )


def not_mapped(transactional_id: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        f"Transactional id {transactional_id!r} has no such producer id; initialise the producer again.",
    )


def producer_fenced(transactional_id: str) -> ApiError:
    return ApiError(
        ErrorCode.PRODUCER_FENCED,
        f"There is a newer producer with the transactional id {transactional_id!r}; close this one.",
    )


def concurrent_transactions(transactional_id: str) -> ApiError:
    return ApiError(
        ErrorCode.CONCURRENT_TRANSACTIONS,
        f"The transaction before is still being ended for {transactional_id!r}; try again soon.",
    )


def no_spare_producer_id() -> ApiError:
    """As in Kafka: the client asks again."""
    return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "No producer id is at hand; try again soon.")
