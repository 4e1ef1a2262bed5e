"""Reading on executors, and the batch reader.

Theory of operation. The driver cuts the offsets of a query into ranges, one task each. A task fetches the raw batches
of its range, the next fetch always under way, and decodes them to Arrow in machine code, which the driver has compiled
if this machine had none. A worker process keeps its connections from task to task: Spark reuses its workers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ottla.client.cluster import Cluster
from ottla.client.errors import NotFoundError, OffsetOutOfRangeError
from ottla.client.offsets import Isolation
from ottla.client.settings import ClientSettings
from ottla.model.ids import TopicPartition
from pyspark_ottla.kernels import compile_ahead, ready_kernels
from pyspark_ottla.offsets import OffsetRange, cut, resolve, subscribed_partitions
from pyspark_ottla.options import SourceOptions
from pyspark_ottla.schema import arrow_schema
from pyspark_ottla.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("pyspark_ottla")

CLUSTERS_PER_WORKER_MAX: Final = 8
"""More than this and the one that was used longest ago is closed."""

LOST_DATA: Final = (
    "Some data may have been lost because they are not available in Kafka any more; either the data was aged out by "
    "Kafka or the topic may have been deleted before all the data in the topic was processed."
)
HOW_NOT_TO_FAIL: Final = (
    'If you don\'t want your query to fail on such cases, set the source option "failOnDataLoss" to "false".'
)
HOW_TO_FAIL: Final = 'If you want your query to fail on such cases, set the source option "failOnDataLoss" to "true".'

_clusters: dict[tuple[int, ClientSettings], Cluster] = {}


class DataLossError(RuntimeError):
    """Offsets that a query needs are gone."""


def report_data_loss(options: SourceOptions, message: str) -> None:
    """Fail, or say that something is missing, as the user chose."""
    if options.fail_on_data_loss:
        raise DataLossError(f"{message}. {LOST_DATA} {HOW_NOT_TO_FAIL}")
    log.warning("%s. %s %s", message, LOST_DATA, HOW_TO_FAIL)


def worker_cluster(settings: ClientSettings) -> Cluster:
    """This process's connections to a cluster; a forked worker makes its own."""
    key = (os.getpid(), settings)
    cluster = _clusters.pop(key, None) or Cluster(settings)
    _clusters[key] = cluster
    while len(_clusters) > CLUSTERS_PER_WORKER_MAX:
        _clusters.pop(next(iter(_clusters))).close()
    return cluster


def drop_cluster(settings: ClientSettings) -> None:
    """Close this process's connections to a cluster."""
    cluster = _clusters.pop((os.getpid(), settings), None)
    if cluster is not None:
        cluster.close()


class RangePartition(InputPartition):
    """One task: a range of offsets of one partition."""

    def __init__(self, offset_range: OffsetRange) -> None:
        super().__init__(repr(offset_range))
        self.topic = offset_range.partition.topic
        self.index = offset_range.partition.partition
        self.start = offset_range.start
        self.end = offset_range.end


def read_range(partition: RangePartition, options: SourceOptions, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The records of a task as Arrow batches. Runs on an executor."""
    # The driver's side does without these, and starts with each query.
    from ottla.client.fetching import FetchSettings
    from ottla.client.partition_reader import PartitionReader

    ready_kernels()
    from pyspark_ottla.decode import Decoder

    settle()
    wanted = TopicPartition(partition.topic, partition.index)
    decoder = Decoder(
        wanted,
        schema,
        read_committed=options.isolation is Isolation.READ_COMMITTED,
        check_crc=options.check_crcs,
    )
    settings = FetchSettings(
        partition_bytes_max=options.fetch_bytes_max, isolation=options.isolation, rack=options.rack
    )
    cluster = worker_cluster(options.settings)
    start, done, known_anew = partition.start, False, False
    try:
        while start < partition.end:
            reader = PartitionReader(
                cluster, wanted, start=start, end=partition.end, settings=settings, stall_ms_max=options.poll_timeout_ms
            )
            try:
                for fetched in reader:
                    yield from decoder.decode(fetched.records, start, partition.end, fetched.aborted)
                    start = fetched.next_offset
            except OffsetOutOfRangeError as error:
                start = _after_loss(options, wanted, start, partition.end, error)
            except NotFoundError as error:
                if not known_anew:
                    # What this worker knows of the topic may be older than the partition.
                    known_anew = True
                    cluster.forget(wanted.topic)
                    continue
                report_data_loss(options, f"offsets {start} to {partition.end} of {wanted} cannot be read: {error}")
                break
            else:
                break
        done = True
    finally:
        if not done:
            # A fetch may be under way whose answer nobody will take.
            drop_cluster(options.settings)


def _after_loss(
    options: SourceOptions, partition: TopicPartition, start: int, end: int, error: OffsetOutOfRangeError
) -> int:
    """Where to go on when the offsets of a range are gone."""
    report_data_loss(options, f"offsets {start} to {end} of {partition} are not all there any more: {error}")
    first = error.log_start_offset
    return first if start < first < end else end


class BatchReader(DataSourceReader):
    """`spark.read.format("ottla")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> Sequence[InputPartition]:
        compile_ahead()
        return [RangePartition(offset_range) for offset_range in self.ranges()]

    def ranges(self) -> list[OffsetRange]:
        """What is read, cut into tasks. Asks the cluster."""
        options = self._options
        with Cluster(options.settings) as cluster:
            wanted = subscribed_partitions(cluster, options.subscription)
            starts = resolve(cluster, wanted, options.starting, options, is_start=True)
            ends = resolve(cluster, wanted, options.ending, options, is_start=False)
            for partition in wanted:
                if starts[partition] > ends[partition]:
                    report_data_loss(
                        options, f"the start {starts[partition]} of {partition} is after its end {ends[partition]}"
                    )
            ranges = [OffsetRange(partition, starts[partition], ends[partition]) for partition in wanted]
            ranges = self.narrowed(cluster, ranges)
        return cut(ranges, options.min_partitions, options.records_per_partition_max)

    def narrowed(self, cluster: Cluster, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """What filters leave of the ranges."""
        return ranges

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Spark reads one partition that is none where there are no partitions.
        if not isinstance(partition, RangePartition):
            return iter(())
        return read_range(partition, self._options, self._schema)
