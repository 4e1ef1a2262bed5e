"""The id, epoch and sequence numbers by which a broker knows a producer's batches, and drops what it has already.

Theory of operation. Sequence numbers are written into a batch when it is first sent, not when it is built, so the
batches of a partition carry consecutive numbers in the order of sending. A batch that is sent again keeps its
numbers: the broker recognises it. After a batch is given up nobody knows whether the broker has it, so its numbers
can neither be used again nor left out: after `forget` the next batch takes a new id, and all partitions start at 0.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.client.errors import broker_error
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, TopicPartition
from ottla.wire.batch import CRC_START
from ottla.wire.crc import crc32c
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

if TYPE_CHECKING:
    from ottla.client.cluster import Cluster

_PRODUCER: Final = Struct(">qhi")
_PRODUCER_POSITION: Final = 43
_CRC: Final = Struct(">I")
_SEQUENCE_MASK: Final = 0x7FFF_FFFF
_TRANSACTION_TIMEOUT_MS: Final = 60_000


class ProducerIdentity:
    """An id from the cluster and a counter for each partition."""

    __slots__ = ("_cluster", "_next_sequence", "producer_epoch", "producer_id")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._next_sequence: dict[TopicPartition, int] = {}
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = -1

    def stamp(self, partition: TopicPartition, batch: bytearray, record_count: int) -> None:
        """Write the id and the partition's next sequence numbers into a batch that has not been sent yet."""
        if self.producer_id == NO_PRODUCER_ID:
            self._take_new()
        sequence = self._next_sequence.get(partition, 0)
        _PRODUCER.pack_into(batch, _PRODUCER_POSITION, self.producer_id, self.producer_epoch, sequence)
        _CRC.pack_into(batch, CRC_START - _CRC.size, crc32c(memoryview(batch)[CRC_START:]))
        self._next_sequence[partition] = (sequence + record_count) & _SEQUENCE_MASK

    def forget(self) -> None:
        """A batch was given up: the next one gets a new id, and the counters start again."""
        self.producer_id = NO_PRODUCER_ID
        self._next_sequence.clear()

    def _take_new(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)

        def attempt() -> InitProducerIdResponse:
            answer = self._cluster.any_connection().call(request, InitProducerIdResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, "cannot get a producer id")
            return answer

        answer = self._cluster.retry(attempt)
        self.producer_id, self.producer_epoch = answer.producer_id, answer.producer_epoch
