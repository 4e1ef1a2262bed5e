"""What a log knows of the producers that write to it: the ground of idempotence and of transactions.

Theory of operation. Every batch of an idempotent producer carries the producer's id, its epoch and the sequence
number of its first record. `check` says before a write whether the batch is the next one (None), one that is here
already (the remembered batch), or wrong (ApiError). `update` notes it after the write. The last five batches of a
producer are remembered, because a client has up to five requests under way and repeats any of them.

Transactions. A transactional batch opens a transaction, a control batch (marker) ends it. From its first offset to its
marker nothing is stable, and a transaction stays unstable until its marker is below the high watermark as well.
`first_unstable_offset` is where the first such transaction begins, as of the high watermark that was told last. It can
only be too low, so whoever wants the last stable offset asks `last_stable_offset` with the high watermark of now.

What an editor must keep true: state depends on nothing but the batches up to `end_offset`, in their order. Live
state, a replay of the log, and a snapshot followed by a replay must agree (but for what one of Kafka's snapshots leaves
out: all but the last batch of each producer).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

from ottla.log.producer_snapshot import SnapshotEntry
from ottla.log.transaction_index import AbortedTransaction
from ottla.log.verifications import Verification, Verifications
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP
from ottla.model.limits import PRODUCER_BATCHES_REMEMBERED
from ottla.wire.batch import TRANSACTIONAL_BIT

PRODUCER_ID_EXPIRATION_MS_DEFAULT: Final = 86_400_000
SEQUENCE_MAX: Final = 2**31 - 1
_SEQUENCE_MASK: Final = SEQUENCE_MAX
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
EPOCH_PER_TRANSACTION_SINCE: Final = 2
"""From this transaction version on every transaction ends with a marker of a higher epoch than its batches have."""
COMPLETED_MAX: Final = 4096
"""Transactions with a marker above the high watermark that are remembered one by one."""


class RememberedBatch(NamedTuple):
    """A batch that was written, as its producer would repeat it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


# What calling the class does, without a Python frame.
remembered: Callable[[tuple[int, int, int, int, int]], RememberedBatch] = partial(tuple.__new__, RememberedBatch)


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended: what an index of aborted transactions needs."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's own."""
    aborted: bool


class Producer:
    """One producer as this log has seen it."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "next_sequence",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = NO_PRODUCER_EPOCH
        self.batches: list[RememberedBatch] = []
        """At most five, oldest first, all of this epoch."""
        self.next_sequence = 0
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = -1
        self.transaction_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def remember(self, batch: RememberedBatch) -> None:
        batches = self.batches
        batches.append(batch)
        if len(batches) > PRODUCER_BATCHES_REMEMBERED:
            del batches[0]
        self.next_sequence = (batch.last_sequence + 1) & _SEQUENCE_MASK
        self.last_timestamp = batch.timestamp

    def begin_epoch(self, epoch: int) -> None:
        """Another incarnation: sequence numbers start anew."""
        self.epoch = epoch
        self.batches = []
        self.next_sequence = 0

    def to_snapshot(self) -> SnapshotEntry:
        last = self.batches[-1] if self.batches else None
        first_offset = self.transaction_first_offset
        return SnapshotEntry(
            self.producer_id,
            self.epoch,
            last.last_sequence if last else NO_SEQUENCE,
            last.last_offset if last else -1,
            last.last_offset - last.base_offset if last else 0,
            self.last_timestamp,
            self.coordinator_epoch,
            -1 if first_offset is None else first_offset,
            tuple(self.batches),
        )

    @classmethod
    def from_snapshot(cls, entry: SnapshotEntry) -> Producer:
        producer = cls(entry.producer_id)
        producer.epoch = entry.epoch
        if entry.batches:
            for batch in entry.batches:
                producer.remember(RememberedBatch(*batch))
        elif entry.last_offset >= 0:
            last, delta = entry.last_sequence, entry.offset_delta
            base_sequence = (last - delta) & _SEQUENCE_MASK if last >= 0 else last
            producer.remember(
                RememberedBatch(base_sequence, last, entry.last_offset - delta, entry.last_offset, entry.timestamp)
            )
        producer.last_timestamp = entry.timestamp
        producer.coordinator_epoch = entry.coordinator_epoch
        if entry.transaction_first_offset >= 0:
            producer.transaction_first_offset = entry.transaction_first_offset
        return producer


class ProducerStates:
    """Every producer of one log."""

    __slots__ = ("_completed", "_open", "_producers", "first_unstable_offset", "verifications")

    def __init__(self) -> None:
        self._producers: dict[int, Producer] = {}
        self._open: dict[int, int] = {}
        """First offset -> producer, of transactions without a marker; in rising order."""
        self._completed: list[tuple[int, int]] = []
        """First offset and offset of the marker, of transactions whose marker may be above the high watermark. Both
        rise: one that began after another and ended before it is left out, the other one speaks for it."""
        self.first_unstable_offset: int | None = None
        self.verifications = Verifications()

    def __len__(self) -> int:
        return len(self._producers)

    # -- the way of a batch from a producer: check, write, update

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int, attributes: int
    ) -> RememberedBatch | None:
        """None if the batch may be written, the batch it repeats if it was written before; else ApiError."""
        producer = self._producers.get(producer_id)
        if producer is None:
            # Its batches may have been deleted, or expired: any sequence begins anew.
            return None
        if epoch != producer.epoch:
            self._check_new_epoch(producer, epoch, base_sequence)
        elif base_sequence != producer.next_sequence and base_sequence >= 0:
            return self._repeated(producer, base_sequence, last_offset_delta)
        if producer.transaction_first_offset is not None and not attributes & TRANSACTIONAL_BIT:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has a transaction open here and must write transactionally",
            )
        return None

    def expecting(self, producer_id: int, epoch: int, base_sequence: int) -> Producer | None:
        """The producer, if this is its next batch and in no transaction; whatever else it is, `check` has to say."""
        producer = self._producers.get(producer_id)
        if (
            producer is None
            or base_sequence != producer.next_sequence
            or epoch != producer.epoch
            or producer.transaction_first_offset is not None
        ):
            return None
        return producer

    def update(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset_delta: int,
        timestamp: int,
        attributes: int,
    ) -> None:
        """Note a batch that has been written."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id)
        if epoch != producer.epoch:
            producer.begin_epoch(epoch)
        last_sequence = (base_sequence + last_offset_delta) & _SEQUENCE_MASK if base_sequence >= 0 else base_sequence
        producer.remember(
            remembered((base_sequence, last_sequence, base_offset, base_offset + last_offset_delta, timestamp))
        )
        if attributes & TRANSACTIONAL_BIT and producer.transaction_first_offset is None:
            producer.transaction_first_offset = base_offset
            self._open[base_offset] = producer_id
            self.verifications.end(producer_id)
            if self.first_unstable_offset is None:
                self.first_unstable_offset = base_offset

    def complete(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, *, aborted: bool
    ) -> CompletedTransaction | None:
        """Note a transaction marker at `offset`; None if the producer has written nothing here since the last one."""
        self.verifications.end(producer_id)
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._producers[producer_id] = Producer(producer_id)
        if epoch != producer.epoch:
            producer.begin_epoch(epoch)
        first_offset, producer.transaction_first_offset = producer.transaction_first_offset, None
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        if first_offset is None:
            return None
        self._open.pop(first_offset, None)
        self._remember_completed(first_offset, offset)
        return CompletedTransaction(producer_id, first_offset, offset, aborted)

    def aborted_by(self, producer_id: int, offset: int) -> AbortedTransaction | None:
        """What the index has to say of an abort marker at `offset`, before `complete`; None if it ends nothing."""
        producer = self._producers.get(producer_id)
        first_offset = None if producer is None else producer.transaction_first_offset
        if first_offset is None:
            return None
        stable_until = next((other for other in self._open if other != first_offset), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, stable_until)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int = 0) -> None:
        """Refuse a marker from a producer or a coordinator that another one has followed."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if epoch < producer.epoch:
            raise _fenced(producer, epoch)
        if (
            epoch == producer.epoch
            and transaction_version >= EPOCH_PER_TRANSACTION_SINCE
            and producer.transaction_first_offset is not None
            and epoch != PRODUCER_EPOCH_MAX
        ):
            # A late repetition of the marker before: it must not end the transaction that has begun since.
            raise _fenced(producer, epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} came after {producer.coordinator_epoch} "
                f"for producer {producer_id}",
            )

    def _check_new_epoch(self, producer: Producer, epoch: int, base_sequence: int) -> None:
        if epoch < producer.epoch:
            raise _fenced(producer, epoch)
        if base_sequence > 0 and producer.epoch != NO_PRODUCER_EPOCH:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {producer.producer_id} begins epoch {epoch} with sequence {base_sequence}, not with 0",
            )

    def _repeated(self, producer: Producer, base_sequence: int, last_offset_delta: int) -> RememberedBatch:
        last_sequence = (base_sequence + last_offset_delta) & _SEQUENCE_MASK
        for batch in producer.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        raise ApiError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer.producer_id} sent sequence {base_sequence}, expected {producer.next_sequence}",
        )

    # -- transactions and the high watermark

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below the high watermark are final: their transactions are stable now."""
        completed = self._completed
        if completed and completed[0][1] < high_watermark:
            del completed[: bisect_left(completed, high_watermark, key=lambda transaction: transaction[1])]
            self._set_first_unstable()

    def last_stable_offset(self, high_watermark: int) -> int:
        """Below it, and below the high watermark, every transaction has ended."""
        self.on_high_watermark(high_watermark)
        unstable = self.first_unstable_offset
        return high_watermark if unstable is None or unstable > high_watermark else unstable

    def index_entry_of(self, completed: CompletedTransaction) -> AbortedTransaction:
        """What `aborted_by` said, after `complete`."""
        stable_until = next(iter(self._open), completed.last_offset + 1)
        return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable_until)

    def _remember_completed(self, first_offset: int, marker_offset: int) -> None:
        completed = self._completed
        while completed and completed[-1][0] > first_offset:
            completed.pop()
        completed.append((first_offset, marker_offset))
        if len(completed) > COMPLETED_MAX:
            # The high watermark is not known, or far behind. Neighbours become stable together, a little later.
            pairs = zip(completed[::2], completed[1::2], strict=False)
            merged = [(first, marker) for (first, _), (_, marker) in pairs]
            self._completed = merged + completed[len(merged) * 2 :]
        self._set_first_unstable()

    def _set_first_unstable(self) -> None:
        first_open = next(iter(self._open), None)
        first_completed = self._completed[0][0] if self._completed else None
        if first_open is None or (first_completed is not None and first_completed < first_open):
            self.first_unstable_offset = first_completed
        else:
            self.first_unstable_offset = first_open

    # -- transactions that begin

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has written in its transaction before, in this incarnation."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.transaction_first_offset is not None and producer.epoch == epoch

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, *, begins_anew: bool
    ) -> Verification:
        """Note that a coordinator is being asked whether a batch may begin a transaction here."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            raise _fenced(producer, epoch)
        return self.verifications.begin(producer_id, epoch, sequence, now_ms, begins_anew=begins_anew)

    def check_verified(self, producer_id: int, epoch: int, sequence: int, verification: Verification | None) -> None:
        """Right before a transactional batch is written: its transaction is open here, or was verified and has not
        ended since. None for a batch of a transaction that was open when the batch came."""
        if not self.has_open_transaction(producer_id, epoch):
            producer = self._producers.get(producer_id)
            knows_producer = producer is not None and bool(producer.batches)
            self.verifications.check(producer_id, sequence, verification, knows_producer=knows_producer)

    # -- housekeeping

    def active_producers(self) -> list[Producer]:
        """Every producer that is remembered, for DescribeProducers."""
        return list(self._producers.values())

    def expire(self, now_ms: int, expiration_ms: int = PRODUCER_ID_EXPIRATION_MS_DEFAULT) -> int:
        """Forget producers that have not written for long and have no transaction open; returns how many."""
        expired = [
            producer_id
            for producer_id, producer in self._producers.items()
            if producer.transaction_first_offset is None and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self._producers[producer_id]
        self.verifications.expire(now_ms, expiration_ms)
        return len(expired)

    def clear(self) -> None:
        self._producers, self._open = {}, {}
        self.verifications = Verifications()
        self._completed.clear()
        self.first_unstable_offset = None

    def to_snapshot(self) -> list[SnapshotEntry]:
        return [producer.to_snapshot() for producer in self._producers.values()]

    def load_snapshot(self, entries: Iterable[SnapshotEntry]) -> None:
        """Take over what a snapshot says, instead of what is here."""
        self.clear()
        for entry in entries:
            self._producers[entry.producer_id] = Producer.from_snapshot(entry)
        opened = [
            (producer.transaction_first_offset, producer.producer_id)
            for producer in self._producers.values()
            if producer.transaction_first_offset is not None
        ]
        self._open = dict(sorted(opened))
        self._set_first_unstable()


def _fenced(producer: Producer, epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"epoch {epoch} of producer {producer.producer_id} was followed by epoch {producer.epoch}",
    )
