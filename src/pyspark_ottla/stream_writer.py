"""The streaming writer: exactly once, however often a batch is run.

Theory of operation. Spark runs a batch's tasks, then calls `commit`; after a crash anywhere it runs the same batch
again, tasks first, with the same rows. Each task writes in a transaction of its own and leaves it open; the same transaction
carries the batch's number as an offset (`batch_progress`). `commit` writes the decision down, then ends every
transaction. So for a task that starts there are three cases:

1. The progress of its sink partition is this batch: its rows are there. It writes nothing.
2. The batch is decided: its rows lie in a transaction that is to be committed. It commits that one and writes nothing.
   Should the transaction be gone (its time-out passed), its rows are nowhere, and it is case 3.
3. Neither: it takes the transactional id over, which aborts what an earlier attempt left open, and writes.

A task of a driver that is dead may still run and take the id over between the decision and the end of the
transaction. Then the end is refused, the batch fails, and when it is run again the others are in case 1 and this
one in case 3.

Nothing is visible to readers of committed data before the decision. What an editor must keep true: the order of these
three looks, and that a transaction is committed only after the decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.client.cluster import Cluster
from ottla.client.transactional_writer import Ended, PreparedTransaction, TransactionalWriter, end_transaction
from ottla.model.ids import TopicPartition
from pyspark_ottla.batch_progress import BatchProgress
from pyspark_ottla.reader import worker_cluster
from pyspark_ottla.sink_options import Delivery, SinkOptions
from pyspark_ottla.writer import SinkError, WrittenMessage, send_rows, task_context, write_at_least_once

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


class StreamMessage(WrittenMessage):
    """A task's word to the driver, which learns from it which query this is."""

    def __init__(self, sink_partition: int, rows: int, prepared: PreparedTransaction | None, query_id: str) -> None:
        super().__init__(sink_partition, rows, prepared)
        self.query_id = query_id


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("ottla")`."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    # -- tasks

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = task_context()
        sink_partition = context.partitionId()
        if self._options.delivery is Delivery.AT_LEAST_ONCE:
            return write_at_least_once(iterator, self._options, sink_partition)
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query_id is None or batch_id is None:
            raise SinkError("delivery=exactly_once needs the query's id and batch, which this Spark does not tell")
        return self.write_once(iterator, query_id, int(batch_id), sink_partition)

    def write_once(
        self, tables: Iterator[pa.RecordBatch], query_id: str, batch_id: int, sink_partition: int
    ) -> StreamMessage:
        """One task of a batch, whichever time it is run."""
        cluster = worker_cluster(self._options.settings)
        progress = BatchProgress(cluster, self._options.id_prefix, query_id)
        if self._is_written(cluster, progress, batch_id, sink_partition):
            for _ in tables:
                pass  # Spark wants its rows to be taken.
            return StreamMessage(sink_partition, 0, None, query_id)
        first = next((table for table in tables if table.num_rows), None)
        if first is None:
            return StreamMessage(sink_partition, 0, None, query_id)
        writer = TransactionalWriter(
            cluster,
            progress.transactional_id(sink_partition),
            timeout_ms=self._options.transaction_timeout_ms,
            delivery_timeout_ms=self._options.delivery_timeout_ms,
        )
        writer.begin()
        rows = send_rows(_chained(first, tables), cluster, writer, self._options)
        prepared = writer.prepare()
        writer.note(progress.progress_group(sink_partition), _anchor(prepared), batch_id)
        return StreamMessage(sink_partition, rows, prepared, query_id)

    def _is_written(self, cluster: Cluster, progress: BatchProgress, batch_id: int, sink_partition: int) -> bool:
        if progress.committed_batch(sink_partition) >= batch_id:
            return True
        decided = progress.decided(batch_id, sink_partition)
        if decided is None:
            return False
        transaction = PreparedTransaction(progress.transactional_id(sink_partition), *decided, (TopicPartition("", 0),))
        ended = end_transaction(cluster, transaction, commit=True)
        return ended is Ended.DONE or progress.committed_batch(sink_partition) >= batch_id

    # -- the driver

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = [message for message in messages if isinstance(message, StreamMessage)]
        prepared = {message.sink_partition: message.prepared for message in told if message.prepared is not None}
        if not prepared:
            return
        with Cluster(self._options.settings) as cluster:
            progress = BatchProgress(cluster, self._options.id_prefix, told[0].query_id)
            progress.decide(batchId, prepared, _anchor(next(iter(prepared.values()))))
            for sink_partition, transaction in prepared.items():
                if end_transaction(cluster, transaction, commit=True) is Ended.DONE:
                    continue
                if progress.committed_batch(sink_partition) < batchId:
                    raise SinkError(
                        f"the transaction {transaction.transactional_id} of batch {batchId} was aborted before it "
                        "could be committed: another run of this query has taken it over, or its time-out passed "
                        "(raise kafka.transaction.timeout.ms). Nothing is lost: start the query again"
                    )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch failed. If it was decided its transactions stay as they are: the next run of it ends them."""
        told = [m for m in messages if isinstance(m, StreamMessage) and m.prepared is not None]
        if not told:
            return
        with Cluster(self._options.settings) as cluster:
            progress = BatchProgress(cluster, self._options.id_prefix, told[0].query_id)
            for message in told:
                if message.prepared is not None and progress.decided(batchId, message.sink_partition) is None:
                    end_transaction(cluster, message.prepared, commit=False)


def _anchor(prepared: PreparedTransaction) -> TopicPartition:
    """A partition that is there, to carry an offset."""
    return TopicPartition(prepared.partitions[0].topic, 0)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
