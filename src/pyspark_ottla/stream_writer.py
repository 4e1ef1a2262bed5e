"""The streaming writer: exactly once, however often a batch is run.

Theory of operation. Spark runs a batch's tasks, then calls `commit`; after a crash anywhere it runs the same batch
again, tasks first, with the same rows. Each task writes in a transaction of its own and leaves it open; the same
transaction carries the batch's number as an offset (`batch_progress`). `commit` writes the decision down, then ends
every transaction. So for a task that starts there are these cases:

1. The batch is decided, and the task's transaction is committed, or can be committed now, or there was none because it
   had no rows: it writes nothing.
2. The batch is decided, but the task's transaction is gone, since its time-out passed or somebody took its id over: its
   rows are nowhere, and it is case 3.
3. The batch is not decided, so nothing of it is committed. The task takes the transactional id over, which aborts what
   an earlier attempt left open and locks that one out. Only now can nobody else commit under this id: so the task looks
   at its progress once more before it writes, or two runs at the same time could both be in this case.

A task of a driver that is dead may still run and take the id over between the decision and the end of the
transaction. Then the end is refused, the batch fails, and when it is run again the others are in case 1 and this one in
case 2.

Nothing is visible to readers of committed data before the decision. What an editor must keep true: the order of these
looks, that a transaction is committed only after the decision, and that progress is in the transaction of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.transactional_writer import Ended, PreparedTransaction, TransactionalWriter, end_transaction
from ottla.model.ids import TopicPartition
from pyspark_ottla.batch_progress import BatchProgress, Decision, Producer
from pyspark_ottla.reader import drop_cluster, worker_cluster
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
        with self._cluster() as cluster:
            progress = BatchProgress(cluster, self._options.id_prefix, query_id)
            decision = progress.decision()
            _check_order(decision, batch_id, query_id)
            if decision.batch_id == batch_id and _is_written(cluster, progress, decision, sink_partition):
                return _nothing_to_do(tables, sink_partition, query_id)
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
            if progress.committed_batch(sink_partition) >= batch_id:
                return _nothing_to_do(tables, sink_partition, query_id)
            try:
                rows = send_rows(_chained(first, tables), cluster, writer, self._options)
                prepared = writer.prepare()
                writer.note(progress.progress_group(sink_partition), _anchor(prepared), batch_id)
            except Exception:
                # The next attempt would abort it as well, but until then readers would have to wait.
                with suppress(ClientError):
                    writer.abort()
                raise
            return StreamMessage(sink_partition, rows, prepared, query_id)

    # -- the driver

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        told = [message for message in messages if isinstance(message, StreamMessage)]
        if not told:
            return
        prepared = {message.sink_partition: message.prepared for message in told if message.prepared is not None}
        with self._cluster() as cluster:
            progress = BatchProgress(cluster, self._options.id_prefix, told[0].query_id)
            decision = progress.decision()
            _check_order(decision, batchId, told[0].query_id)
            producers: dict[int, Producer] = {}
            if decision.batch_id == batchId:
                producers = progress.all_decided(decision)
                _finish_earlier_run(cluster, progress, decision, producers, len(messages), bool(prepared))
            elif prepared:
                decision = Decision(batchId, len(messages), _anchor(next(iter(prepared.values()))))
            if not prepared:
                return
            producers |= {place: Producer(*transaction[1:3]) for place, transaction in prepared.items()}
            progress.decide(decision, producers)
            for sink_partition, transaction in prepared.items():
                if not _is_committed(cluster, progress, transaction, batchId, sink_partition):
                    raise SinkError(
                        f"the transaction {transaction.transactional_id} of batch {batchId} was aborted before it "
                        "could be committed: another run of this query has taken it over, or its time-out passed "
                        "(raise kafka.transaction.timeout.ms). Nothing is lost: start the query again"
                    )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The batch failed. Transactions that a decision names stay open: the next run of the batch ends them."""
        told = [message for message in messages if isinstance(message, StreamMessage)]
        if all(message.prepared is None for message in told):
            return
        with self._cluster() as cluster:
            progress = BatchProgress(cluster, self._options.id_prefix, told[0].query_id)
            decision = progress.decision()
            decided = progress.all_decided(decision) if decision.batch_id == batchId else {}
            for message in told:
                transaction = message.prepared
                if transaction is not None and decided.get(message.sink_partition) != Producer(*transaction[1:3]):
                    end_transaction(cluster, transaction, commit=False)

    @contextmanager
    def _cluster(self) -> Iterator[Cluster]:
        """This process's connections, which are given up when anything fails: an answer may be owed on them."""
        try:
            yield worker_cluster(self._options.settings)
        except BaseException:
            drop_cluster(self._options.settings)
            raise


def _check_order(decision: Decision, batch_id: int, query_id: str) -> None:
    if decision.batch_id > batch_id:
        raise SinkError(
            f"batch {batch_id} of query {query_id} is to be written, but batch {decision.batch_id} is in the cluster "
            "already: another run of the query is ahead of this one, or the checkpoint is an old copy. Stop the other "
            "run; with an old checkpoint, start with a new one and with startingOffsets where the output ends"
        )


def _is_written(cluster: Cluster, progress: BatchProgress, decision: Decision, sink_partition: int) -> bool:
    """Whether a sink partition's rows of a decided batch are committed; commits them if that is still possible."""
    producer = progress.decided(decision, sink_partition)
    if producer is None:
        return True
    transaction = _decided_transaction(progress, decision, sink_partition, producer)
    return _is_committed(cluster, progress, transaction, decision.batch_id, sink_partition)


def _is_committed(
    cluster: Cluster, progress: BatchProgress, transaction: PreparedTransaction, batch_id: int, sink_partition: int
) -> bool:
    """Commit a transaction of a decided batch. A refusal says nothing if it, or its like, was committed before."""
    ended = end_transaction(cluster, transaction, commit=True)
    return ended is Ended.DONE or progress.committed_batch(sink_partition) >= batch_id


def _decided_transaction(
    progress: BatchProgress, decision: Decision, sink_partition: int, producer: Producer
) -> PreparedTransaction:
    return PreparedTransaction(progress.transactional_id(sink_partition), *producer, (decision.anchor,))


def _finish_earlier_run(
    cluster: Cluster,
    progress: BatchProgress,
    decision: Decision,
    producers: dict[int, Producer],
    task_count: int,
    is_rewritten: bool,
) -> None:
    """Commit what no task of this run stands for: an earlier run may have cut the same batch into more of them."""
    is_lost = is_rewritten and task_count != decision.task_count
    for sink_partition, producer in producers.items():
        if sink_partition >= task_count:
            transaction = _decided_transaction(progress, decision, sink_partition, producer)
            is_lost |= not _is_committed(cluster, progress, transaction, decision.batch_id, sink_partition)
    if is_lost:
        raise SinkError(
            f"batch {decision.batch_id} was cut into {decision.task_count} tasks when it was first written, and now "
            f"into {task_count}; a part of it has to be written again, and the parts do not match. Start the query "
            "with the number of partitions that it had before"
        )


def _nothing_to_do(tables: Iterator[pa.RecordBatch], sink_partition: int, query_id: str) -> StreamMessage:
    for _ in tables:
        pass  # Spark wants its rows to be taken.
    return StreamMessage(sink_partition, 0, None, query_id)


def _anchor(prepared: PreparedTransaction) -> TopicPartition:
    """A partition that is there, to carry an offset."""
    return TopicPartition(prepared.partitions[0].topic, 0)


def _chained(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest
