"""Raw batches of one partition between two offsets, with the next fetch always under way.

    for fetched in PartitionReader(cluster, TopicPartition("orders", 0), start=0, end=1_000_000):
        decode(fetched.records)

Nothing is decoded here beyond batch headers: `records` is a view of the bytes as the broker sent them, whole batches
only. The next request leaves before a range is handed out, so the broker works while the caller decodes. The first
batch may begin before `start` and the last may end after `end`: offsets within batches are the caller's to compare.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection, Pending
from ottla.client.deadline import Backoff, Deadline
from ottla.client.errors import (
    STALE_METADATA_CODES,
    ClientError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    broker_error,
)
from ottla.client.fetching import Fetched, FetchedPartition, FetchSettings, send_fetch
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.client.visibility import whole_batches
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

STALL_MS_MAX: Final = 60_000


class FetchedRange(NamedTuple):
    """Whole batches that cover offsets up to `next_offset`."""

    records: memoryview
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int], ...]


class PartitionReader:
    """Iterates once over the batches of a partition. Several readers may share a cluster if they take turns."""

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        *,
        start: int,
        end: int,
        settings: FetchSettings | None = None,
        stall_ms_max: int = STALL_MS_MAX,
    ) -> None:
        self._cluster = cluster
        self._partition = partition
        self._end = end
        self._settings = settings or FetchSettings(partition_bytes_max=2 << 20)
        self._stall_ms_max = stall_ms_max
        self._under_way: tuple[Connection, Pending[Fetched]] | None = None
        self.position = start
        """The offset that is asked for next."""

    def __iter__(self) -> Iterator[FetchedRange]:
        stall = Deadline(self._stall_ms_max)
        backoff = Backoff(self._cluster.settings, stall)
        while self.position < self._end:
            try:
                fetched = self._next()
            except ClientError as error:
                self._under_way = None
                if not error.retriable or not backoff.wait():
                    raise
                continue
            records, self.position = whole_batches(fetched.records, self.position)
            if not records:
                self._check_stalled(stall, fetched)
                continue
            stall = Deadline(self._stall_ms_max)
            backoff = Backoff(self._cluster.settings, stall)
            if self.position < self._end:
                self._ask()
            yield FetchedRange(
                records, self.position, fetched.high_watermark, fetched.last_stable_offset, fetched.aborted
            )

    def _ask(self) -> None:
        """Send the next fetch if the leader can be reached; if not, the turn that needs it finds out."""
        try:
            connection = self._cluster.leader_connection(self._partition, waiting=True)
            pending = send_fetch(self._cluster, connection, {self._partition: self.position}, self._settings)
        except ClientError:
            self._under_way = None
        else:
            self._under_way = connection, pending

    def _next(self) -> FetchedPartition:
        if self._under_way is None:
            connection = self._cluster.leader_connection(self._partition, waiting=True)
            pending = send_fetch(self._cluster, connection, {self._partition: self.position}, self._settings)
        else:
            connection, pending = self._under_way
            self._under_way = None
        fetched = connection.receive(pending)
        code = fetched.error
        for entry in fetched.partitions:
            if entry.partition == self._partition:
                code = entry.error
                if code is ErrorCode.NONE:
                    return entry
        raise self._refused(code)

    def _refused(self, code: ErrorCode) -> ClientError:
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            first = list_offsets(self._cluster, {self._partition: EARLIEST})[self._partition].offset
            last = list_offsets(self._cluster, {self._partition: LATEST})[self._partition].offset
            return OffsetOutOfRangeError(self._partition, self.position, first, last)
        if code in STALE_METADATA_CODES:
            self._cluster.forget(self._partition.topic)
        return broker_error(code, f"cannot read {self._partition}")

    def _check_stalled(self, stall: Deadline, fetched: FetchedPartition) -> None:
        if stall.passed():
            raise RequestTimeoutError(
                f"{self._partition} has had nothing at offset {self.position} for {self._stall_ms_max} ms, though it "
                f"should be read up to {self._end}; its high watermark is {fetched.high_watermark}, "
                f"its last stable offset {fetched.last_stable_offset}"
            )
