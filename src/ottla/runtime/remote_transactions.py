"""Asking a transaction's coordinator on another broker whether partitions are part of the transaction (KIP-890).

What `transaction_verification` asks of the coordinators here it asks in the same words of one elsewhere: by
AddPartitionsToTxn, which brokers send from version 4 on. A coordinator that cannot be reached is NETWORK_EXCEPTION,
which is answered like one that is being loaded: come again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.runtime.controller_requests import known_code
from ottla.runtime.network import PeerError
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.runtime.peers import Peers

LANE: Final = "coordinator"
REQUEST_MS_MAX: Final = 5_000
"""A producer waits behind this, and asks again afterwards."""
FROM_BROKERS_SINCE: Final = 4


class RemoteTransactions:
    """The transaction coordinators of other brokers."""

    __slots__ = ("_image", "_node_id", "_peers")

    def __init__(self, peers: Peers, image: Callable[[], MetadataImage], *, node_id: int) -> None:
        self._peers = peers
        self._image = image
        self._node_id = node_id

    def verify(
        self,
        coordinator_partition: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> Awaitable[Mapping[TopicPartition, ErrorCode]] | None:
        """What the coordinator says of each partition; None if it is on this broker, or nowhere."""
        topic = self._image().topics.get(TRANSACTION_STATE_TOPIC)
        if topic is None or coordinator_partition >= len(topic.partitions):
            return None
        leader = topic.partitions[coordinator_partition].leader
        if leader == self._node_id:
            return None
        if leader < 0:
            message = f"the coordinator of {transactional_id} has no leader; try again"
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
        topics: dict[str, list[int]] = {}
        for tp in sorted(partitions):
            topics.setdefault(tp.topic, []).append(tp.partition)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )
        return self._ask(leader, transaction, partitions)

    async def _ask(
        self, broker_id: int, transaction: AddPartitionsToTxnTransaction, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        try:
            peer = self._peers.to_broker(broker_id, LANE)
            response = await peer.request(
                request, AddPartitionsToTxnResponse, timeout_ms=REQUEST_MS_MAX, version_min=FROM_BROKERS_SINCE
            )
        except PeerError as error:
            message = f"the coordinator of {transaction.transactional_id} could not be asked: {error}"
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, message) from error
        if response.error_code:
            raise ApiError(known_code(response.error_code), "the coordinator refuses to verify transactions")
        said = {
            TopicPartition(topic.name, item.partition_index): known_code(item.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for item in topic.results_by_partition
        }
        return {tp: said.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR) for tp in partitions}
