"""Bad rows on their way to a dead-letter topic, from within the query that found them.

Theory of operation. A filter is the only thing that every plan evaluates, so this is one: an Arrow function that gets a
null for each good row and the whole row for a bad one, and lets the good ones pass. The bad ones are sent on the way,
by the task that reads them, so there is no second query and no second read, and any sink may follow.

In a stream the letters of a task are one transaction of an id that is made of the query, the batch's task and what the
task does. It is ended when the task has seen its last row. The batch's number and a digest of the letters are committed
as an offset *in the same transaction*. When a task is run again, for whatever reason, taking the id over aborts what an
earlier run left open and locks that run out; the letters are written again, and at the end the note says whether the
same letters of the same batch are there already. Then the transaction is aborted, else it is committed. So each letter
arrives once if the batch is the same when it is run again; if it is not, because it was cut into other tasks, a letter
may arrive twice. None is ever lost.

A batch query has no number to go by: its letters are sent whenever it is run.

What an editor must keep true: the note is read after the id was taken over, and committed with the letters; a task that
was not asked for its last row commits nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.errors import AlreadyExistsError, ClientError, NotFoundError
from ottla.client.groups import GroupAdmin
from ottla.client.transactional_writer import Ended, TransactionalWriter, end_transaction
from ottla.model.errors import OttlaError
from ottla.model.ids import TopicPartition
from pyspark_ottla.decode import HEADERS_TYPE
from pyspark_ottla.json_faults import Fault, find_fault
from pyspark_ottla.reader import drop_cluster, worker_cluster
from pyspark_ottla.sink_options import Delivery, SinkOptions
from pyspark_ottla.stream_writer import BATCH_ID, QUERY_ID
from pyspark_ottla.writer import IdempotentSending, RowSending, SinkError, task_context

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("pyspark_ottla")

REASON: Final = "ottla.error.reason"
FIELD: Final = "ottla.error.field"
SOURCE: Final = "ottla.source."
"""Headers of where a row came from begin with this: topic, partition, offset, timestamp (in ms)."""
_PLACE: Final = ("topic", "partition", "offset")
_DIGEST_BYTES: Final = 8

Row = dict[str, Any]


class BadRowError(OttlaError):
    """A row does not fit the schema, and there is no place for such rows."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """What an executor has to know. Picklable."""

    schema: StructType
    options: SinkOptions | None
    """Where bad rows go; None: nowhere, they are an error."""
    name: str = ""
    """Tells two uses in one query apart."""

    def pass_good(self, columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        """For each row whether it is good, which is where the column is null. Bad ones have been sent at the end."""
        task: _Task | None = None
        done = False
        try:
            for column in columns:
                is_good = column.is_null()
                if column.null_count < len(column):
                    task = task or self._task(column)
                    task.add([row for row in column.to_pylist() if row is not None])
                yield is_good
            if task is not None:
                task.finish()
            done = True
        finally:
            if not done:
                self._give_up(task)

    def _give_up(self, task: _Task | None) -> None:
        """The task failed, or nobody wants the rest of its rows."""
        if task is not None:
            task.abort()
        if self.options is not None:
            # An answer may be owed on these connections.
            drop_cluster(self.options.settings)

    def _task(self, column: pa.Array) -> _Task:
        if self.options is None:
            row = next(row for row in column.to_pylist() if row is not None)
            fault = find_fault(row.get("value"), self.schema)
            raise BadRowError(f"{_place(row)}: {fault.reason}. Name a topic for such rows with bad_rows=...")
        return _Task(self, self.options, column)


def passing(letters: DeadLetters) -> Callable[[Iterator[pa.Array]], Iterator[pa.Array]]:
    """As a function, with the types by which Spark knows what it takes and gives."""

    def pass_good(columns: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return letters.pass_good(columns)

    return pass_good


class _Task:
    """The letters of one task, from the first one on."""

    def __init__(self, letters: DeadLetters, options: SinkOptions, column: pa.Array) -> None:
        self._schema = letters.schema
        self._cluster = worker_cluster(options.settings)
        self._count, self._digest = 0, 0
        self._topic = options.topic or ""
        make_sure_of_topic(self._cluster, self._topic)
        context = task_context()
        query_id, self._batch_id = context.getLocalProperty(QUERY_ID), int(context.getLocalProperty(BATCH_ID) or -1)
        first = next(row for row in column.to_pylist() if row is not None)
        place = f"{letters.name}-{first.get('topic') or ''}-{context.partitionId()}"
        self._id = f"{options.id_prefix}-bad-rows-{query_id}-{place}"
        self._writer: TransactionalWriter | None = None
        self._plain: IdempotentSending | None = None
        if options.delivery is Delivery.EXACTLY_ONCE:
            if query_id is None:
                raise SinkError("delivery=exactly_once of bad rows is for streams: this is a batch query")
            self._writer = TransactionalWriter(
                self._cluster,
                self._id,
                timeout_ms=options.transaction_timeout_ms,
                delivery_timeout_ms=options.delivery_timeout_ms,
            )
            self._writer.begin()
            self._sending = RowSending(self._cluster, self._writer, options)
        else:
            self._plain = IdempotentSending(self._cluster, options)
            self._sending = RowSending(self._cluster, self._plain, options)

    def add(self, rows: list[Row]) -> None:
        for row in rows:
            self._digest = (self._digest + _digest(row)) % (1 << 8 * _DIGEST_BYTES)
        self._count += len(rows)
        self._sending.add(_table(rows, [find_fault(row.get("value"), self._schema) for row in rows]))

    def finish(self) -> None:
        """Everything is stored, and once, when this returns."""
        self._sending.finish()
        if self._plain is not None:
            self._plain.flush()
        if self._writer is None:
            return
        prepared = self._writer.prepare()
        anchor, metadata = TopicPartition(self._topic, 0), f"{self._count}:{self._digest:x}"
        noted = GroupAdmin(self._cluster).fetch_offsets(self._id).get(anchor)
        if noted is not None and (noted.offset, noted.metadata) == (self._batch_id, metadata):
            self._writer.abort()
            return
        self._writer.note(self._id, anchor, self._batch_id, metadata)
        if end_transaction(self._cluster, prepared, commit=True) is not Ended.DONE:
            raise SinkError(
                f"the transaction {self._id} was aborted before it could be committed: another run of this task has "
                "taken it over, or its time-out passed (raise kafka.transaction.timeout.ms). Nothing is lost"
            )

    def abort(self) -> None:
        """Readers need not wait for the end of something that will not be committed."""
        if self._writer is not None:
            with suppress(ClientError):
                self._writer.abort()


def make_sure_of_topic(cluster: Cluster, topic: str) -> None:
    """A dead-letter topic is made when its first letter comes, with the brokers' defaults."""
    try:
        cluster.topic(topic)
    except NotFoundError:
        log.warning("the dead-letter topic %s is not there and is made now", topic)
        with suppress(AlreadyExistsError):
            Admin(cluster).create_topic(topic)
        cluster.forget(topic)


def _table(rows: list[Row], faults: list[Fault]) -> pa.RecordBatch:
    """Key and value as they were, and the headers with ours behind them."""
    headers = [_headers(row, fault) for row, fault in zip(rows, faults, strict=True)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row.get("key") for row in rows], pa.binary()),
            pa.array([row.get("value") for row in rows], pa.binary()),
            pa.array(headers, HEADERS_TYPE),
        ],
        names=["key", "value", "headers"],
    )


def _headers(row: Row, fault: Fault) -> list[dict[str, Any]]:
    ours = {REASON: fault.reason, FIELD: fault.field}
    ours |= {SOURCE + name: str(row[name]) for name in (*_PLACE, "timestamp") if row.get(name) is not None}
    added = [{"key": name, "value": text.encode()} for name, text in ours.items() if text]
    return [*(row.get("headers") or ()), *added]


def _place(row: Row) -> str:
    if any(row.get(name) is None for name in _PLACE):
        return "a row is bad"
    return f"the row at offset {row['offset']} of {row['topic']}-{row['partition']} is bad"


def _digest(row: Row) -> int:
    """Stands for a row; their sum does not depend on the order in which rows come."""
    place = [row.get(name) for name in _PLACE]
    known = place if None not in place else [row.get("key"), row.get("value")]
    return int.from_bytes(hashlib.blake2b(repr(known).encode(), digest_size=_DIGEST_BYTES).digest(), "big")
