"""How far a query is, committed to a group, so that every tool that shows lag shows Spark's queries too.

The driver's side of a source does not know its query; a task does. So each task commits the end of its range when it
has handed its records over. The query itself never reads this: its checkpoint says where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.client.errors import ClientError
from ottla.model.ids import TopicPartition
from pyspark_ottla.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_ottla.reader import RangePartition

log = logging.getLogger("pyspark_ottla")

QUERY_ID: Final = "sql.streaming.queryId"


def show_progress(
    batches: Iterator[pa.RecordBatch], partition: RangePartition, options: SourceOptions
) -> Iterator[pa.RecordBatch]:
    """The same batches; when the last one is taken the group is told."""
    yield from batches
    group_id = group_of_query(options)
    if not options.commit_offsets or group_id is None:
        return
    from ottla.client.groups import GroupAdmin
    from pyspark_ottla.reader import worker_cluster

    consumed = {TopicPartition(partition.topic, partition.index): partition.end}
    try:
        GroupAdmin(worker_cluster(options.settings)).commit_offsets(group_id, consumed)
    except ClientError as error:
        log.warning("the progress of group %s could not be shown: %s", group_id, error)


def group_of_query(options: SourceOptions) -> str | None:
    """The group that stands for a query: the one that the user named, else one that the query's id makes unique."""
    if options.group_id is not None:
        return options.group_id
    from pyspark import TaskContext

    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    return None if query_id is None else f"{options.group_id_prefix}-{query_id}"
