"""The streaming reader.

Theory of operation. One instance lives in the driver's runner process and is asked for offsets; tasks run on copies
that know only what their partition says. A trigger costs one ListOffsets to each leader: what is known about topics is
kept for a while, and the answer serves `latestOffset` and `reportLatestOffset`.

The start of a query's first batch is in no checkpoint. If that batch fails, Spark asks for the initial offset anew, and
with `latest` everything in between would be gone without a word. So the first `latestOffset` of a new query gives the
start back: batch 0 is empty, and from then on the start is written down. With AvailableNow an empty batch would end the
query, so there only partitions that start at `latest` are held back, which have nothing to read in that run. Should
such a batch 0 be run again, its end may lie before the start that is resolved now: nothing is lost, since batch 1 goes
on from that end.

What an editor must keep true:
- `initialOffset` answers the same however often it is asked.
- Nothing new means `start` itself, to the byte.
- Batch 0 never reads from a partition whose start was the latest offset.
- Any other range whose end is before its start is data loss and is reported, never skipped in silence.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from ottla.client.cluster import Cluster
from ottla.client.errors import NotFoundError
from ottla.client.offsets import LATEST
from ottla.model.ids import TopicPartition
from pyspark_ottla.kernels import compile_ahead
from pyspark_ottla.offsets import (
    OffsetJson,
    OffsetRange,
    PartitionOffsets,
    cut,
    earliest_offsets,
    from_json,
    latest_offsets,
    resolve,
    subscribed_partitions,
    to_json,
    within_limit,
)
from pyspark_ottla.options import Edge, Offsets, SourceOptions
from pyspark_ottla.progress import show_progress
from pyspark_ottla.reader import RangePartition, read_range, report_data_loss
from pyspark_ottla.schema import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("pyspark_ottla")

TOPICS_AGE_SECONDS_MAX: Final = 10.0
"""How long new partitions and topics may go unnoticed."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("ottla")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)
        self._cluster: Cluster | None = None
        self._initial: OffsetJson | None = None
        self._is_pinned = False
        self._partitions: list[TopicPartition] = []
        self._partitions_read_at = float("-inf")
        self._head: PartitionOffsets | None = None
        self._everything: PartitionOffsets | None = None
        self._is_available_now = False
        self._batch_begun_at = 0.0
        self._bytes_per_row = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cluster": None}

    # -- offsets, in the driver

    def initialOffset(self) -> OffsetJson:
        if self._initial is None:
            wanted = self._subscribed(anew=True)
            self._initial = to_json(
                resolve(self._connected(), wanted, self._options.starting, self._options, is_start=True)
            )
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        self._is_available_now = True

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: OffsetJson, limit: Any) -> OffsetJson:
        is_new, self._is_pinned = not self._is_pinned and start == self._initial, True
        if is_new and not self._is_available_now:
            return start
        begin = from_json(start)
        head = self._latest(begin)
        begin |= self._starts_of_new(begin, head)
        end = self._limited(begin, head, limit)
        return start if to_json(end) == to_json(from_json(start)) else to_json(end)

    def reportLatestOffset(self) -> OffsetJson | None:
        return None if self._head is None else to_json(self._head)

    def _latest(self, known: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Where the partitions end. One that is gone keeps the end that the query knows."""
        if self._is_available_now and self._everything is not None:
            return self._everything
        wanted = self._subscribed()
        head = latest_offsets(self._connected(), wanted, self._options.isolation)
        for partition, offset in known.items():
            if partition not in head:
                report_data_loss(self._options, self._why_gone(partition))
            elif head[partition] < offset:
                report_data_loss(
                    self._options,
                    f"{partition} ends at offset {head[partition]}, before {offset}, where the query is",
                )
        self._head = head
        if not self._is_available_now:
            return head
        held_back = {} if self._initial is None else from_json(self._initial)
        held_back = {partition: offset for partition, offset in held_back.items() if self._starts_at_latest(partition)}
        self._everything = {partition: held_back.get(partition, offset) for partition, offset in head.items()}
        return self._everything

    def _why_gone(self, partition: TopicPartition) -> str:
        topics = self._options.subscription.topics
        if not topics or partition.topic in topics:
            return f"{partition} is gone"
        return (
            f"the checkpoint has {partition}, and this query reads {', '.join(topics)}: it is the checkpoint of "
            "another query, or topics were taken away from this one; give a query a checkpoint of its own"
        )

    def _starts_at_latest(self, partition: TopicPartition) -> bool:
        starting = self._options.starting
        if isinstance(starting, Offsets):
            return starting.by_partition.get(partition) == LATEST
        return starting is Edge.LATEST

    def _starts_of_new(self, begin: Mapping[TopicPartition, int], head: PartitionOffsets) -> PartitionOffsets:
        """Partitions that came while the query ran are read from their beginning."""
        new = [partition for partition in head if partition not in begin]
        starts = earliest_offsets(self._connected(), new, self._options.isolation) if new else {}
        if new:
            log.info("partitions were added: %s", ", ".join(map(str, new)))
        for partition, offset in starts.items():
            if offset > 0:
                report_data_loss(self._options, f"added partition {partition} starts from {offset} instead of 0")
        return starts

    def _limited(self, begin: PartitionOffsets, head: PartitionOffsets, limit: Any) -> PartitionOffsets:
        options, now = self._options, time.monotonic()
        rows = sum(max(offset - begin.get(partition, offset), 0) for partition, offset in head.items())
        least = options.offsets_per_trigger_min
        waits = now - self._batch_begun_at < options.trigger_delay_ms_max / 1000 and not self._is_available_now
        if least is not None and rows < least and waits:
            return {partition: offset for partition, offset in begin.items() if partition in head}
        self._batch_begun_at = now
        most = getattr(limit, "max_rows", None) or options.offsets_per_trigger_max
        if options.bytes_per_trigger_max is not None and rows:
            by_bytes = self._rows_of_bytes(options.bytes_per_trigger_max, begin, head)
            most = by_bytes if most is None else min(most, by_bytes)
        return head if most is None else within_limit(begin, head, most)

    def _rows_of_bytes(self, bytes_max: int, begin: PartitionOffsets, head: PartitionOffsets) -> int:
        """About how many offsets have this many bytes, judged by a sample of what is to be read."""
        from pyspark_ottla.sampling import bytes_per_offset

        self._bytes_per_row = bytes_per_offset(self._connected(), begin, head, self._options) or self._bytes_per_row
        return max(int(bytes_max / self._bytes_per_row), 1) if self._bytes_per_row else bytes_max

    # -- tasks

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        compile_ahead()
        options = self._options
        starts, ends = from_json(start), from_json(end)
        starts |= self._starts_of_new(starts, ends)
        for partition in starts:
            if partition not in ends:
                report_data_loss(options, self._why_gone(partition))
        ranges = []
        for partition in sorted(ends):
            is_held_back = start == self._initial and self._starts_at_latest(partition)
            if ends[partition] < starts[partition] and not is_held_back:
                report_data_loss(
                    options,
                    f"the offset of {partition} went back from {starts[partition]} to {ends[partition]}",
                )
            ranges.append(OffsetRange(partition, starts[partition], ends[partition]))
        cut_ranges = cut(ranges, options.min_partitions, options.records_per_partition_max)
        return [RangePartition(offset_range) for offset_range in cut_ranges]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            return iter(())
        return show_progress(read_range(partition, self._options, self._schema), partition, self._options)

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    # -- the cluster

    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._options.settings)
        return self._cluster

    def _subscribed(self, *, anew: bool = False) -> list[TopicPartition]:
        now = time.monotonic()
        if anew or now - self._partitions_read_at > TOPICS_AGE_SECONDS_MAX:
            try:
                self._partitions = subscribed_partitions(self._connected(), self._options.subscription)
            except NotFoundError as error:
                if not self._partitions:
                    raise
                report_data_loss(self._options, str(error))
                self._partitions = []
            self._partitions_read_at = now
        return self._partitions
