"""Ready batches in a transaction that somebody else may end.

Theory of operation. A writer takes over a transactional id (`InitProducerId`), which ends whatever an earlier holder of
the id had open and locks it out. Batches then go to their leaders under the writer's producer id and epoch. `prepare`
waits until all of them are stored, and gives a `PreparedTransaction`: who holds that may end the transaction, from any
process, at any later time before its time-out. So a decision about many transactions can be made, and written down, in
one place.

With `transaction.version` 2 a broker adds a partition to the transaction with its first batch; older ones want to hear
of it before.

What an answer to `end` means. Done is also a repetition of what was done before: with version 2 the coordinator knows a
repeated request by its epoch, which is one below the current one. FENCED means that somebody has taken the id over in
the meantime: then the transaction was aborted, unless it had been committed before, and only the caller can know that.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from ottla.client.batch_sender import BatchSender, Delivery
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.coordinators import CoordinatorKind, Coordinators
from ottla.client.errors import ClientError, broker_error
from ottla.client.producer_identity import ProducerIdentity
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

IMPLICIT_ADD_FEATURE: Final = "transaction.version"
IMPLICIT_ADD_LEVEL: Final = 2
_ADD_VERSION_MAX: Final = 3
"""Later versions of AddPartitionsToTxn are for brokers."""
_OLD_END_VERSION: Final = 4
"""The last EndTxn that leaves the epoch alone."""
_OLD_OFFSETS_VERSION: Final = 4
"""The last TxnOffsetCommit that wants the group to be added before."""
_OLD_PRODUCE_VERSION: Final = 11
"""The last Produce that wants partitions to be added before."""
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


class PreparedTransaction(NamedTuple):
    """All that is needed to end a transaction. Picklable."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_empty(self) -> bool:
        """Nothing was written, so there is nothing to end."""
        return not self.partitions


class Ended(Enum):
    """What became of a request to end a transaction."""

    DONE = "done"
    FENCED = "fenced"
    NOT_OPEN = "not open"
    """The coordinator knows the producer, but no transaction that could take this end."""


class _GivenIdentity(ProducerIdentity):
    """The identity of a transaction. It is never changed: a batch that is given up takes the transaction with it."""

    __slots__ = ()

    def forget(self) -> None:
        pass


class TransactionalWriter:
    """One transaction of one transactional id."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int,
        delivery_timeout_ms: int = 120_000,
    ) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._coordinators = Coordinators(cluster, CoordinatorKind.TRANSACTION)
        self._identity = _GivenIdentity(cluster)
        self._partitions: dict[TopicPartition, None] = {}
        self._failure: ClientError | None = None
        self._adds_implicitly = False
        self._sender = BatchSender(
            cluster,
            self._delivered,
            identity=self._identity,
            delivery_timeout_ms=delivery_timeout_ms,
            transactional_id=transactional_id,
            before_first=self._add_partitions,
        )

    @property
    def queued_bytes(self) -> int:
        """Bytes that are not stored yet."""
        return self._sender.queued_bytes

    def begin(self) -> None:
        """Take the id over. An open transaction of an earlier holder is aborted first, which may take a moment."""
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=self._timeout_ms)

        def attempt(connection: Connection) -> InitProducerIdResponse:
            answer = connection.call(request, InitProducerIdResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, f"cannot begin a transaction of {self._id!r}")
            self._adds_implicitly = max(connection.features.get(IMPLICIT_ADD_FEATURE, (0, 0))) >= IMPLICIT_ADD_LEVEL
            return answer

        answer = self._coordinators.call(self._id, attempt)
        self._identity.producer_id, self._identity.producer_epoch = answer.producer_id, answer.producer_epoch
        if not self._adds_implicitly:
            self._sender.version_max = _OLD_PRODUCE_VERSION

    def submit(self, partition: TopicPartition, records: bytearray, record_count: int) -> None:
        """Queue one batch, whose attributes say that it belongs to a transaction. Raises what went wrong before."""
        self._check()
        self._partitions[partition] = None
        self._sender.submit(partition, records, record_count)

    def poll(self, wait_ms: float = 0) -> None:
        """Send and receive what can be."""
        self._sender.poll(wait_ms)
        self._check()

    def note(self, group_id: str, partition: TopicPartition, offset: int, metadata: str = "") -> None:
        """Commit an offset to a group if, and when, the transaction is committed."""
        if not self._adds_implicitly:
            self._add_group(group_id)
        entry = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=metadata
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[entry])],
        )

        def attempt(connection: Connection) -> None:
            newest = connection.version_of(TxnOffsetCommitRequest)
            version = newest if self._adds_implicitly else min(newest, _OLD_OFFSETS_VERSION)
            answer = connection.receive(connection.send(request, TxnOffsetCommitResponse, version=version))
            for topic in answer.topics:
                for result in topic.partitions:
                    if result.error_code != ErrorCode.NONE:
                        error = broker_error(result.error_code, f"cannot commit an offset of group {group_id!r}")
                        # A topic may be so new that the group's coordinator has not heard of it.
                        error.retriable |= error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        raise error

        Coordinators(self._cluster, CoordinatorKind.GROUP).call(group_id, attempt)
        self._partitions[partition] = None

    def _add_group(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            group_id=group_id,
        )

        def attempt(connection: Connection) -> None:
            answer = connection.call(request, AddOffsetsToTxnResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, f"cannot add group {group_id!r} to the transaction")

        self._coordinators.call(self._id, attempt)

    def prepare(self) -> PreparedTransaction:
        """Wait until everything is stored; the transaction stays open."""
        self._sender.flush()
        self._check()
        identity = self._identity
        return PreparedTransaction(
            self._id, identity.producer_id, identity.producer_epoch, tuple(sorted(self._partitions))
        )

    def abort(self) -> None:
        """Give everything up that was written."""
        identity = self._identity
        if self._partitions:
            written = tuple(sorted(self._partitions))
            prepared = PreparedTransaction(self._id, identity.producer_id, identity.producer_epoch, written)
            end_transaction(self._cluster, prepared, commit=False)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _delivered(self, delivery: Delivery) -> None:
        # A batch that is lost takes the whole transaction with it.
        self._failure = self._failure or delivery.error

    def _add_partitions(self, partitions: list[TopicPartition]) -> None:
        if self._adds_implicitly:
            return
        topics: dict[str, list[int]] = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=some) for name, some in topics.items()],
        )

        def attempt(connection: Connection) -> None:
            version = min(connection.version_of(AddPartitionsToTxnRequest), _ADD_VERSION_MAX)
            answer = connection.receive(connection.send(request, AddPartitionsToTxnResponse, version=version))
            for topic in answer.results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    if result.partition_error_code != ErrorCode.NONE:
                        subject = f"cannot add {topic.name}-{result.partition_index} to the transaction of {self._id!r}"
                        raise broker_error(result.partition_error_code, subject)

        self._coordinators.call(self._id, attempt)


def end_transaction(cluster: Cluster, prepared: PreparedTransaction, *, commit: bool) -> Ended:
    """Commit or abort, and wait for it. May be repeated; see above for what the answers mean."""
    if prepared.is_empty:
        return Ended.DONE
    request = EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        committed=commit,
    )

    def attempt(connection: Connection) -> Ended:
        level = max(connection.features.get(IMPLICIT_ADD_FEATURE, (0, 0)))
        newest = connection.version_of(EndTxnRequest)
        version = newest if level >= IMPLICIT_ADD_LEVEL else min(newest, _OLD_END_VERSION)
        answer = connection.receive(connection.send(request, EndTxnResponse, version=version))
        if answer.error_code == ErrorCode.NONE:
            return Ended.DONE
        if answer.error_code in _FENCED:
            return Ended.FENCED
        if answer.error_code == ErrorCode.INVALID_TXN_STATE:
            return Ended.NOT_OPEN
        raise broker_error(answer.error_code, f"cannot end the transaction of {prepared.transactional_id!r}")

    return Coordinators(cluster, CoordinatorKind.TRANSACTION).call(prepared.transactional_id, attempt)
