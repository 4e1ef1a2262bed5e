"""Administration of transactions: list, describe, find those that hang, abort.

There are two ways to end somebody else's transaction, and each is safe where the other is not.

- While its coordinator knows the transaction, the coordinator must end it. `abort` asks for a new epoch of the
  transactional id, as a new producer of that name would: the coordinator locks the old producer out, aborts what it had
  open in every partition, and nobody disagrees about the outcome.
- A transaction *hangs* when a partition still has it open and no coordinator knows of it any more. Nobody will ever end
  it, readers of committed records wait for ever, and compaction stops. `abort_hanging` writes the abort marker into
  that one partition, with the producer's own id and epoch. For a transaction that a coordinator knows this would
  be wrong (it might commit, with one partition aborted), so that is looked up first, and refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.coordinators import CoordinatorKind, Coordinators
from ottla.client.errors import (
    STALE_METADATA_CODES,
    BrokerError,
    NotFoundError,
    broker_error,
    error_code,
)
from ottla.client.offsets import by_leader
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PARTITIONS_PER_REQUEST: Final = 500
ONGOING: Final = "Ongoing"
COMMITTING: Final = "PrepareCommit"
_ABORTING: Final = ("PrepareAbort", "PrepareEpochFence")
_DURATION_SINCE: Final = 1
_PATTERN_SINCE: Final = 2


class ListedTransaction(NamedTuple):
    """A transactional id as a list shows it."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """Where a transactional id stands. `started_ms` is -1 if it had no transaction yet."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]
    coordinator: int

    @property
    def running(self) -> bool:
        """Whether a transaction is open, or on its way to its end."""
        return self.state in (ONGOING, COMMITTING, *_ABORTING) and self.started_ms >= 0


class OpenTransaction(NamedTuple):
    """A transaction that a partition has open."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int


class TransactionAdmin:
    """Every administrative call about transactions, over a cluster that somebody else closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorKind.TRANSACTION)

    def list_transactions(
        self,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        *,
        running_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """The transactional ids of all brokers, by name. `running_ms`: only those open for longer."""

        def attempt() -> list[ListedTransaction]:
            under_way = []
            for broker in self._cluster.brokers():
                connection = self._cluster.connection(broker.node_id)
                version = connection.version_of(ListTransactionsRequest)
                _check_filters(version, running_ms, pattern)
                request = ListTransactionsRequest(
                    state_filters=list(states),
                    producer_id_filters=list(producer_ids),
                    duration_filter=running_ms,
                    transactional_id_pattern=pattern,
                )
                under_way.append((broker.node_id, connection, connection.send(request, ListTransactionsResponse)))
            found: list[ListedTransaction] = []
            for node_id, connection, pending in under_way:
                found += _listed(connection.receive(pending), node_id)
            return sorted(found)

        return self._cluster.retry(attempt)

    def describe(self, transactional_id: str) -> TransactionDescription:
        """One transactional id; NotFoundError if its coordinator does not know it."""

        def attempt(connection: Connection) -> TransactionDescription:
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            found = connection.call(request, DescribeTransactionsResponse).transaction_states[0]
            if found.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise _not_found(transactional_id)
            if found.error_code != ErrorCode.NONE:
                raise broker_error(found.error_code, f"cannot describe transactional id {transactional_id!r}")
            return TransactionDescription(
                transactional_id=transactional_id,
                state=found.transaction_state,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                timeout_ms=found.transaction_timeout_ms,
                started_ms=found.transaction_start_time_ms,
                partitions=tuple(
                    sorted(TopicPartition(t.topic, number) for t in found.topics for number in t.partitions)
                ),
                coordinator=self._coordinators.node_id(transactional_id),
            )

        return self._coordinators.call(transactional_id, attempt)

    def abort(self, transactional_id: str) -> bool:
        """End the open transaction of an id through its coordinator, and lock its producer out.

        False if there is none: then nothing is done, and a producer that is idle is not disturbed. One that commits at
        the same moment may come first, and is locked out all the same.
        """
        found = self.describe(transactional_id)
        if found.state == COMMITTING:
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE, f"the transaction of {transactional_id!r} is committed already: too late"
            )
        if found.state not in (ONGOING, *_ABORTING):
            return False

        def attempt(connection: Connection) -> bool:
            # The time-out stays with the id until its next producer says its own.
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=max(found.timeout_ms, 1)
            )
            answer = connection.call(request, InitProducerIdResponse)
            if answer.error_code != ErrorCode.NONE:
                # CONCURRENT_TRANSACTIONS until the markers are written: the call is repeated until they are.
                raise broker_error(answer.error_code, f"cannot abort the transaction of {transactional_id!r}")
            return True

        return self._coordinators.call(transactional_id, attempt)

    # Partitions

    def open_transactions(self, partitions: Sequence[TopicPartition]) -> Iterator[tuple[int, list[OpenTransaction]]]:
        """What the leaders of these partitions have open: how many partitions were asked, and what they said."""
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            asked = partitions[start : start + PARTITIONS_PER_REQUEST]
            yield len(asked), self._cluster.retry(lambda asked=asked: self._ask_leaders(asked))  # type: ignore[misc]

    def hanging(self, candidates: Collection[OpenTransaction]) -> list[OpenTransaction]:
        """Those of the open transactions that no coordinator will end."""
        if not candidates:
            return []
        producer_ids = {candidate.producer_id for candidate in candidates}
        known = {listed.producer_id: listed.transactional_id for listed in self.list_transactions((), producer_ids)}
        expected: dict[int, tuple[TopicPartition, ...]] = {}
        for producer_id, transactional_id in known.items():
            try:
                expected[producer_id] = self.describe(transactional_id).partitions
            except NotFoundError:
                continue
        return [found for found in candidates if found.partition not in expected.get(found.producer_id, ())]

    def abort_hanging(self, partition: TopicPartition, start_offset: int) -> OpenTransaction:
        """Write the abort marker of a hanging transaction into its partition; gives what was aborted."""
        found = [entry for _, some in self.open_transactions([partition]) for entry in some]
        chosen = next((entry for entry in found if entry.start_offset == start_offset), None)
        if chosen is None:
            raise NotFoundError(
                ErrorCode.RESOURCE_NOT_FOUND,
                f"{partition} has no open transaction that starts at offset {start_offset}; see `ottla txn hanging`",
            )
        if not self.hanging([chosen]):
            (owner, *_) = self.list_transactions((), (chosen.producer_id,))
            raise BrokerError(
                ErrorCode.INVALID_TXN_STATE,
                f"the transaction at offset {start_offset} of {partition} does not hang, its coordinator will end it: "
                f"to abort it, run `ottla txn abort {owner.transactional_id}`",
            )
        self._cluster.retry(lambda: self._write_abort(chosen))
        return chosen

    def _write_abort(self, found: OpenTransaction) -> None:
        topic, number = found.partition
        marker = WritableTxnMarker(
            producer_id=found.producer_id,
            producer_epoch=found.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
            # -1 while no marker of this producer was ever written there; 0 is at most what any coordinator has.
            coordinator_epoch=max(found.coordinator_epoch, 0),
        )
        connection = self._cluster.leader_connection(found.partition)
        answer = connection.call(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse)
        for code in _codes(answer):
            self._check_partition(code, f"cannot abort the transaction in {found.partition}", topic)

    def _ask_leaders(self, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
        found: list[OpenTransaction] = []
        for node_id, led in by_leader(self._cluster, dict.fromkeys(partitions)).items():
            topics: dict[str, list[int]] = {}
            for partition in led:
                topics.setdefault(partition.topic, []).append(partition.partition)
            request = DescribeProducersRequest(
                topics=[TopicRequest(name=name, partition_indexes=numbers) for name, numbers in topics.items()]
            )
            answer = self._cluster.connection(node_id).call(request, DescribeProducersResponse)
            for topic in answer.topics:
                for entry in topic.partitions:
                    partition = TopicPartition(topic.name, entry.partition_index)
                    subject = f"cannot describe the producers of {partition}"
                    self._check_partition(entry.error_code, subject, topic.name, entry.error_message)
                    found += [
                        OpenTransaction(
                            partition,
                            producer.producer_id,
                            producer.producer_epoch,
                            producer.coordinator_epoch,
                            producer.current_txn_start_offset,
                            producer.last_timestamp,
                        )
                        for producer in entry.active_producers
                        if producer.current_txn_start_offset >= 0
                    ]
        return found

    def _check_partition(self, code: int, subject: str, topic: str, detail: str | None = None) -> None:
        if code == ErrorCode.NONE:
            return
        if error_code(code) in STALE_METADATA_CODES:
            self._cluster.forget(topic)
        raise broker_error(code, subject, detail)


def _check_filters(version: int, running_ms: int, pattern: str | None) -> None:
    if (running_ms >= 0 and version < _DURATION_SINCE) or (pattern is not None and version < _PATTERN_SINCE):
        raise broker_error(
            ErrorCode.UNSUPPORTED_VERSION,
            "cannot list transactions",
            "the broker is too old to choose them by duration or by pattern",
        )


def _listed(answer: ListTransactionsResponse, node_id: int) -> list[ListedTransaction]:
    if answer.error_code != ErrorCode.NONE:
        raise broker_error(answer.error_code, f"cannot list the transactions of broker {node_id}")
    return [
        ListedTransaction(entry.transactional_id, entry.transaction_state, entry.producer_id, node_id)
        for entry in answer.transaction_states
    ]


def _codes(answer: WriteTxnMarkersResponse) -> Iterator[int]:
    for marker in answer.markers:
        for topic in marker.topics:
            for result in topic.partitions:
                yield result.error_code


def _not_found(transactional_id: str) -> NotFoundError:
    return NotFoundError(
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        f"there is no transactional id {transactional_id!r}; see `ottla txn list` (TRANSACTIONAL_ID_NOT_FOUND)",
    )
