"""A producer without a thread: records in, batches out.

    with Producer(cluster) as producer:
        producer.send("orders", b"value", key=b"key")

`send` adds a record to the batch of its partition, and sends the batch when it is full or older than `linger_ms`; the
answer is taken by a later call. `flush` sends what is left and waits for every answer. A batch that could not be
delivered shows as a DeliveryError from the next `send`, from `flush` or from `close`, unless `on_delivery` was given:
then each batch is reported there, and nothing is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Self

from ottla.client.batch_sender import ALL_IN_SYNC, BatchSender, Delivery
from ottla.client.cluster import Cluster
from ottla.client.deadline import Deadline
from ottla.client.errors import BufferFullError, DeliveryError, broker_error
from ottla.client.partitioner import StickyPartitions, partition_for_key
from ottla.client.producer_identity import ProducerIdentity
from ottla.model.errors import ConfigError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch

RECORD_OVERHEAD_BYTES_MAX: Final = 32
"""What a record takes besides its key, value and headers, at most."""
CODECS: Final = {codec.name.lower(): codec for codec in Codec}
"""Kafka's names of the codecs."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How records are gathered and sent. Picklable."""

    acks: int = ALL_IN_SYNC
    idempotent: bool = True
    """Whether the broker drops repeated batches; needs acks=all."""
    compression: str = "none"
    """none, gzip, snappy, lz4 or zstd."""
    compression_level: int | None = None
    batch_bytes: int = 256 << 10
    linger_ms: int = 20
    buffer_bytes_max: int = 32 << 20
    """Records that wait for a broker; `send` waits when there are more."""
    delivery_timeout_ms: int = 120_000
    in_flight_max: int = 5

    def check(self) -> None:
        """ConfigError for what does not go together."""
        if self.acks not in (-1, 0, 1):
            raise ConfigError(f"acks: {self.acks} is not one of all (-1), 0, 1")
        if self.idempotent and self.acks != ALL_IN_SYNC:
            raise ConfigError(f"enable.idempotence: needs acks=all, not acks={self.acks}")
        if self.compression not in CODECS:
            raise ConfigError(f"compression.type: {self.compression!r} is not one of {', '.join(CODECS)}")


class _OpenBatch:
    __slots__ = ("opened_at", "records", "size")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.size = 0
        self.opened_at = time.monotonic()


class Producer:
    """Sends records to any topics of a cluster, which somebody else closes."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings | None = None,
        on_delivery: Callable[[Delivery], None] | None = None,
    ) -> None:
        self.settings = settings or ProducerSettings()
        self.settings.check()
        self._cluster = cluster
        self._on_delivery = on_delivery
        self._sticky = StickyPartitions()
        self._open: dict[TopicPartition, _OpenBatch] = {}
        self._open_bytes = 0
        self._oldest_at = float("inf")
        self._failure: Delivery | None = None
        self.delivered_records = 0
        self.failed_records = 0
        self._sender = BatchSender(
            cluster,
            self._delivered,
            acks=self.settings.acks,
            identity=ProducerIdentity(cluster) if self.settings.idempotent else None,
            delivery_timeout_ms=self.settings.delivery_timeout_ms,
            in_flight_max=self.settings.in_flight_max,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Take a record. May send, and waits while the buffer is full."""
        self._raise_failure()
        target = self._target(topic, key, partition)
        size = _size(key, value, headers)
        batch = self._open.get(target)
        if batch is not None and batch.size + size > self.settings.batch_bytes:
            self._submit(target, batch)
            if key is None and partition is None:
                target = self._target(topic, None, None)
            batch = self._open.get(target)
        if batch is None:
            self._wait_for_room(size)
            batch = self._open[target] = _OpenBatch()
            self._oldest_at = min(self._oldest_at, batch.opened_at)
        now_ms = time.time_ns() // 1_000_000 if timestamp_ms is None else timestamp_ms
        batch.records.append(Record(len(batch.records), now_ms, key, value, headers))
        batch.size += size
        self._open_bytes += size
        if self._lingered():
            self.poll()

    def poll(self, wait_ms: float = 0) -> None:
        """Send batches that are old enough and take the answers that have come."""
        if self._lingered():
            horizon = time.monotonic() - self.settings.linger_ms / 1000
            for target, batch in [(t, b) for t, b in self._open.items() if b.opened_at <= horizon]:
                self._submit(target, batch)
        self._sender.poll(wait_ms)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Send everything and wait for the answers; DeliveryError if a batch did not arrive."""
        for target, batch in list(self._open.items()):
            self._submit(target, batch)
        self._sender.flush(None if timeout_ms is None else Deadline(timeout_ms))
        self._raise_failure()
        if not self._sender.idle:
            raise DeliveryError(f"records are still on their way after {timeout_ms} ms", 0)

    def close(self) -> None:
        """Flush. The cluster stays open."""
        self.flush()

    def _target(self, topic: str, key: bytes | None, partition: int | None) -> TopicPartition:
        count = len(self._cluster.topic(topic, auto_create=True).partitions)
        if partition is None:
            chosen = self._sticky.current(topic, count) if key is None else partition_for_key(key, count)
            return TopicPartition(topic, chosen)
        if not 0 <= partition < count:
            raise broker_error(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"partition {partition}",
                f"topic {topic!r} has partitions 0 to {count - 1}",
            )
        return TopicPartition(topic, partition)

    def _submit(self, target: TopicPartition, batch: _OpenBatch) -> None:
        del self._open[target]
        self._open_bytes -= batch.size
        self._oldest_at = min((other.opened_at for other in self._open.values()), default=float("inf"))
        codec, level = CODECS[self.settings.compression], self.settings.compression_level
        self._sender.submit(target, build_batch(batch.records, codec=codec, level=level), len(batch.records))
        self._sticky.batch_full(target.topic, target.partition, len(self._cluster.topic(target.topic).partitions))
        self._sender.poll()

    def _lingered(self) -> bool:
        return time.monotonic() - self._oldest_at >= self.settings.linger_ms / 1000

    def _wait_for_room(self, size: int) -> None:
        deadline = Deadline(self._cluster.settings.api_timeout_ms)
        while self._sender.queued_bytes and self._buffered() + size > self.settings.buffer_bytes_max:
            self._sender.poll(min(deadline.ms_left(), 1_000))
            self._raise_failure()
            if deadline.passed():
                raise BufferFullError(
                    f"{self._buffered()} bytes wait to be sent and no broker took any for "
                    f"{self._cluster.settings.api_timeout_ms} ms: check the brokers, or raise buffer_bytes_max"
                )

    def _buffered(self) -> int:
        return self._sender.queued_bytes + self._open_bytes

    def _delivered(self, delivery: Delivery) -> None:
        if delivery.error is None:
            self.delivered_records += delivery.record_count
        else:
            self.failed_records += delivery.record_count
        if self._on_delivery is not None:
            self._on_delivery(delivery)
        elif delivery.error is not None and self._failure is None:
            self._failure = delivery

    def _raise_failure(self) -> None:
        if self._failure is None or self._failure.error is None:
            return
        error, self._failure = self._failure.error, None
        message = f"{self.failed_records} records were not delivered: {error}"
        raise DeliveryError(message, self.failed_records) from error


def _size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    size = RECORD_OVERHEAD_BYTES_MAX + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"") + 8
    return size
