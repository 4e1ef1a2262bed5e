"""Sending transaction markers to the brokers that lead the partitions they belong to.

Theory of operation. The coordinator of a transaction has decided; `send` takes its markers to every partition. Those
that are led here are written at once. The others wait in a queue per broker: one request at a time is under way to a
broker, and whatever gathers meanwhile goes with the next one, so that many small transactions share few requests.

A partition's result is what its leader says, or NETWORK_EXCEPTION where it said nothing. Whoever sends tries again what
did not succeed (`transaction_coordinators`), by the leaders that are known by then; a marker that comes twice does no
harm. Markers have a lane of their own: an answer waits until followers have the markers, and must hold up nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.controller_requests import known_code
from ottla.runtime.marker_writing import Marker, Results
from ottla.runtime.network import PeerError
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.core.transactions.commands import PendingMarkers
    from ottla.runtime.marker_writing import MarkerWriter
    from ottla.runtime.peers import Peers

LANE: Final = "markers"
REQUEST_MS_MAX: Final = 15_000
"""Longer than a leader waits for its followers (`marker_writing`)."""
MARKERS_PER_REQUEST_MAX: Final = 200
PARTITIONS_PER_REQUEST_MAX: Final = 2_000
"""One marker more than this is begun: a transaction with more partitions than that still fits."""


class _Sending(NamedTuple):
    """The part of a transaction's markers that one broker is to write."""

    marker: Marker
    partitions: Sequence[TopicPartition]
    results: asyncio.Future[Results]


class MarkerSending:
    """Takes markers to their partitions, here and elsewhere."""

    __slots__ = ("_image", "_node_id", "_peers", "_queues", "_tasks", "_writer")

    def __init__(self, writer: MarkerWriter, peers: Peers, image: Callable[[], MetadataImage], *, node_id: int) -> None:
        self._writer = writer
        self._peers = peers
        self._image = image
        self._node_id = node_id
        self._queues: dict[int, deque[_Sending]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """By broker: whoever is working off its queue."""

    def send(self, markers: PendingMarkers, coordinator_epoch: int) -> Results | Awaitable[Results]:
        """What became of each partition: at once, where all of them are here and nothing has to be waited for."""
        marker = Marker.of(markers, coordinator_epoch)
        if all(self._leader_of(tp) == self._node_id for tp in markers.partitions):
            return self._writer.write(marker, markers.partitions)
        return self._send_everywhere(marker, *self._by_leader(markers.partitions))

    async def close(self) -> None:
        """Whoever waits gets no more than an error for each partition."""
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        for queue in self._queues.values():
            while queue:
                _fail(queue.popleft())

    def _leader_of(self, tp: TopicPartition) -> int | None:
        """None if there is no such partition, -1 if it has no leader."""
        topic = self._image().topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition].leader

    def _by_leader(
        self, partitions: Collection[TopicPartition]
    ) -> tuple[list[TopicPartition], dict[int, list[TopicPartition]], dict[TopicPartition, ErrorCode]]:
        """Partitions led here, those of other brokers, and results of those that nobody leads."""
        here: list[TopicPartition] = []
        elsewhere: dict[int, list[TopicPartition]] = {}
        nowhere: dict[TopicPartition, ErrorCode] = {}
        for tp in partitions:
            leader = self._leader_of(tp)
            if leader is None:
                nowhere[tp] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif leader == self._node_id:
                here.append(tp)
            elif leader < 0:
                nowhere[tp] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                elsewhere.setdefault(leader, []).append(tp)
        return here, elsewhere, nowhere

    async def _send_everywhere(
        self,
        marker: Marker,
        here: Collection[TopicPartition],
        elsewhere: Mapping[int, Sequence[TopicPartition]],
        results: dict[TopicPartition, ErrorCode],
    ) -> Results:
        waiting = [self._enqueue(broker_id, marker, partitions) for broker_id, partitions in elsewhere.items()]
        if here:
            written = self._writer.write(marker, here)
            results.update(written if isinstance(written, Mapping) else await written)
        for answer in waiting:
            results.update(await answer)
        return results

    def _enqueue(self, broker_id: int, marker: Marker, partitions: Sequence[TopicPartition]) -> asyncio.Future[Results]:
        loop = asyncio.get_running_loop()
        sending = _Sending(marker, partitions, loop.create_future())
        self._queues.setdefault(broker_id, deque()).append(sending)
        if broker_id not in self._tasks:
            self._tasks[broker_id] = loop.create_task(self._work_off(broker_id))
        return sending.results

    async def _work_off(self, broker_id: int) -> None:
        queue = self._queues[broker_id]
        try:
            while queue:
                await self._send_some(broker_id, _take(queue))
        finally:
            del self._tasks[broker_id]

    async def _send_some(self, broker_id: int, some: Sequence[_Sending]) -> None:
        request = WriteTxnMarkersRequest(markers=[_writable(sending.marker, sending.partitions) for sending in some])
        codes: Sequence[Mapping[TopicPartition, ErrorCode]] = ()
        try:
            peer = self._peers.to_broker(broker_id, LANE)
            codes = _codes(await peer.request(request, WriteTxnMarkersResponse, timeout_ms=REQUEST_MS_MAX))
        except PeerError:
            pass  # Repeated by whoever sent them; the log would say the same for every transaction.
        finally:
            for index, sending in enumerate(some):
                _settle(sending, codes[index] if index < len(codes) else {})


def _take(queue: deque[_Sending]) -> list[_Sending]:
    """As much as one request holds."""
    some: list[_Sending] = []
    partitions = 0
    while queue and len(some) < MARKERS_PER_REQUEST_MAX and partitions < PARTITIONS_PER_REQUEST_MAX:
        some.append(queue.popleft())
        partitions += len(some[-1].partitions)
    return some


def _writable(marker: Marker, partitions: Sequence[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()],
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )


def _codes(response: WriteTxnMarkersResponse) -> list[dict[TopicPartition, ErrorCode]]:
    """Answers come in the order of the markers: a producer may have two of them in one request."""
    return [
        {
            TopicPartition(topic.name, item.partition_index): known_code(item.error_code)
            for topic in marker.topics
            for item in topic.partitions
        }
        for marker in response.markers
    ]


def _settle(sending: _Sending, codes: Mapping[TopicPartition, ErrorCode]) -> None:
    if not sending.results.done():
        missing = ErrorCode.NETWORK_EXCEPTION
        sending.results.set_result({tp: codes.get(tp, missing) for tp in sending.partitions})


def _fail(sending: _Sending) -> None:
    _settle(sending, {})
