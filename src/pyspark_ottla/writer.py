"""Writing on executors, and the batch writer.

A task takes Arrow batches, encodes them in machine code and sends them to the leaders. At least once, with an
idempotent producer: a row is doubled only when a task is run twice. Exactly once, in a transaction that the task leaves
open: see `stream_writer`. A batch write in transactions is all or nothing as long as the driver lives to end it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Protocol
from uuid import uuid4

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from ottla.client.batch_sender import BatchSender
from ottla.client.batch_sender import Delivery as Delivered
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.producer_identity import ProducerIdentity
from ottla.client.transactional_writer import Ended, PreparedTransaction, TransactionalWriter, end_transaction
from ottla.model.ids import TopicPartition
from pyspark_ottla.kernels import ready_kernels
from pyspark_ottla.reader import worker_cluster
from pyspark_ottla.sink_options import Delivery, SinkOptions
from pyspark_ottla.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext

QUEUED_BYTES_MAX: Final = 32 << 20
"""More than this and a task waits until brokers have taken some."""


class SinkError(RuntimeError):
    """Rows could not be written; the message says why and what to do."""


class Sending(Protocol):
    """Where encoded batches go."""

    @property
    def queued_bytes(self) -> int: ...

    def submit(self, partition: TopicPartition, records: bytearray, record_count: int) -> None: ...

    def poll(self, wait_ms: float = 0) -> None: ...


class WrittenMessage(WriterCommitMessage):
    """What a task did: how many rows, in which transaction if in one."""

    def __init__(self, sink_partition: int, rows: int, prepared: PreparedTransaction | None = None) -> None:
        self.sink_partition = sink_partition
        self.rows = rows
        self.prepared = prepared


class IdempotentSending:
    """Batches outside of transactions; the brokers drop what they have already."""

    def __init__(self, cluster: Cluster, options: SinkOptions) -> None:
        self._failure: ClientError | None = None
        identity = ProducerIdentity(cluster) if options.acks == -1 else None
        self._sender = BatchSender(
            cluster,
            self._delivered,
            acks=options.acks,
            identity=identity,
            delivery_timeout_ms=options.delivery_timeout_ms,
        )
        self.submit = self._sender.submit

    @property
    def queued_bytes(self) -> int:
        return self._sender.queued_bytes

    def poll(self, wait_ms: float = 0) -> None:
        self._sender.poll(wait_ms)
        self._check()

    def flush(self) -> None:
        self._sender.flush()
        self._check()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _delivered(self, delivery: Delivered) -> None:
        self._failure = self._failure or delivery.error


class RowSending:
    """Encodes and sends tables as they come. After `finish` the last batches may be under way still."""

    def __init__(self, cluster: Cluster, sending: Sending, options: SinkOptions) -> None:
        ready_kernels()
        from pyspark_ottla.encode import BatchEncoder

        settle()
        self._sending = sending
        self._encoder = BatchEncoder(
            lambda topic: len(cluster.topic(topic, auto_create=True).partitions),
            topic=options.topic,
            codec=options.codec,
            transactional=options.delivery is Delivery.EXACTLY_ONCE,
            row_bytes_max=options.row_bytes_max,
            batch_bytes=options.batch_bytes,
        )

    def add(self, table: pa.RecordBatch) -> None:
        for batch in self._encoder.add(table):
            _submit(self._sending, *batch)

    def finish(self) -> None:
        for batch in self._encoder.finish():
            _submit(self._sending, *batch)


def send_rows(tables: Iterator[pa.RecordBatch], cluster: Cluster, sending: Sending, options: SinkOptions) -> int:
    """Encode and send everything; returns how many rows there were. The last batches may be under way still."""
    rows, row_sending = 0, RowSending(cluster, sending, options)
    for table in tables:
        rows += table.num_rows
        row_sending.add(table)
    row_sending.finish()
    return rows


def _submit(sending: Sending, partition: TopicPartition, records: bytearray, record_count: int) -> None:
    sending.submit(partition, records, record_count)
    sending.poll()
    while sending.queued_bytes > QUEUED_BYTES_MAX:
        sending.poll(1_000)


def write_at_least_once(tables: Iterator[pa.RecordBatch], options: SinkOptions, sink_partition: int) -> WrittenMessage:
    """A task outside of transactions: returns when everything is stored."""
    cluster = worker_cluster(options.settings)
    sending = IdempotentSending(cluster, options)
    rows = send_rows(tables, cluster, sending, options)
    sending.flush()
    return WrittenMessage(sink_partition, rows)


def task_context() -> TaskContext:
    """The task that this process runs."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise SinkError("rows are written by Spark's tasks, and this is none")
    return context


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("ottla")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        options, sink_partition = self._options, task_context().partitionId()
        if options.delivery is Delivery.AT_LEAST_ONCE:
            return write_at_least_once(iterator, options, sink_partition)
        cluster = worker_cluster(options.settings)
        writer = TransactionalWriter(
            cluster,
            f"{options.id_prefix}-{self._job}-{sink_partition}",
            timeout_ms=options.transaction_timeout_ms,
            delivery_timeout_ms=options.delivery_timeout_ms,
        )
        writer.begin()
        rows = send_rows(iterator, cluster, writer, options)
        return WrittenMessage(sink_partition, rows, writer.prepare())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        prepared = [message.prepared for message in messages if isinstance(message, WrittenMessage)]
        with Cluster(self._options.settings) as cluster:
            for transaction in prepared:
                if transaction is not None and end_transaction(cluster, transaction, commit=True) is not Ended.DONE:
                    raise SinkError(
                        f"the transaction {transaction.transactional_id} was aborted before it could be committed: "
                        "raise kafka.transaction.timeout.ms if the job takes longer than that"
                    )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        with Cluster(self._options.settings) as cluster:
            for message in messages:
                if isinstance(message, WrittenMessage) and message.prepared is not None:
                    end_transaction(cluster, message.prepared, commit=False)
