"""Writing transaction markers to the partitions that this broker leads.

A marker goes to each partition that a transaction wrote to, whoever coordinates it: this broker (`marker_sending`) or
another one (WriteTxnMarkers). Each partition stands for itself. A marker counts as written when it is below the high
watermark; one in a partition of the offsets topic is told to that partition's group coordinator as soon as it is in the
log, like every other record there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from ottla.model.errors import ApiError, ErrorCode, OttlaError, StorageError
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC, TopicPartition

if TYPE_CHECKING:
    from ottla.core.transactions.commands import PendingMarkers
    from ottla.runtime.appending import Flushing
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.world import Clock

PARTITIONS_PER_TURN_MAX: Final = 64
"""Markers that are written in one go; after these others get their turn on the loop."""

COMMIT_MS_MAX: Final = 3_000
"""How long followers are waited for. Whoever sent the marker sends it again then; meanwhile others wait behind it."""

Results: TypeAlias = Mapping[TopicPartition, ErrorCode]


_Unsettled: TypeAlias = "tuple[Partition, int]"
"""A partition, and the end of the marker in it."""


class Marker(NamedTuple):
    """How a transaction ended, and who says so."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool
    transaction_version: int = 0
    """2: the epoch is higher than that of the transaction's records, and logs insist on it."""

    @classmethod
    def of(cls, markers: PendingMarkers, coordinator_epoch: int) -> Marker:
        """Of a transaction that is coordinated here."""
        return cls(
            markers.producer_id,
            markers.producer_epoch,
            coordinator_epoch,
            markers.committed,
            markers.transaction_version,
        )


class OffsetsCoordinators(Protocol):
    """The group coordinators, as far as they must hear of markers."""

    def replay_marker(self, partition: int, producer_id: int, *, committed: bool) -> None: ...


class MarkerWriter:
    """Writes markers here."""

    __slots__ = ("_clock", "_flushing", "_groups", "_table", "written")

    def __init__(
        self,
        table: PartitionTable,
        clock: Clock,
        flushing: Flushing,
        groups: Callable[[], OffsetsCoordinators],
    ) -> None:
        self._table = table
        self._clock = clock
        self._flushing = flushing
        self._groups = groups
        self.written = 0
        """Markers since start, those that were repeated included."""

    def send(self, markers: PendingMarkers, coordinator_epoch: int) -> Results | Awaitable[Results]:
        """Write the markers of a transaction that is coordinated here, as far as its partitions are here too."""
        return self.write(Marker.of(markers, coordinator_epoch), markers.partitions)

    def write(self, marker: Marker, partitions: Collection[TopicPartition]) -> Results | Awaitable[Results]:
        """What became of each partition: at once, where nothing has to be waited for."""
        if len(partitions) > PARTITIONS_PER_TURN_MAX:
            return self._write_in_turns(marker, partitions)
        results: dict[TopicPartition, ErrorCode] = {}
        unsettled = self._append_all(marker, partitions, results)
        return self._settle(unsettled, results) if unsettled else results

    async def _write_in_turns(self, marker: Marker, partitions: Collection[TopicPartition]) -> Results:
        results: dict[TopicPartition, ErrorCode] = {}
        unsettled: list[_Unsettled] = []
        rest = iter(partitions)
        while some := list(islice(rest, PARTITIONS_PER_TURN_MAX)):
            unsettled += self._append_all(marker, some, results)
            await asyncio.sleep(0)
        return await self._settle(unsettled, results)

    def _append_all(
        self, marker: Marker, partitions: Collection[TopicPartition], results: dict[TopicPartition, ErrorCode]
    ) -> list[_Unsettled]:
        """Append to each partition; returns those whose markers are not below the high watermark yet."""
        unsettled = []
        now_ms = self._clock.now_ms()
        for tp in partitions:
            try:
                partition, end_offset = self._append(marker, tp, now_ms)
                results[tp] = ErrorCode.NONE
            except OttlaError as error:
                results[tp] = self._refusal(error)
                continue
            if partition.high_watermark < end_offset:
                unsettled.append((partition, end_offset))
        return unsettled

    def _append(self, marker: Marker, tp: TopicPartition, now_ms: int) -> _Unsettled:
        topic = self._table.topic(tp.topic)
        partition = self._table.leader_of(topic, tp.partition)
        partition.check_in_sync(topic.config.min_insync_replicas)
        appended = partition.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            committed=marker.committed,
            now_ms=now_ms,
            transaction_version=marker.transaction_version,
        )
        self.written += 1
        if tp.topic == CONSUMER_OFFSETS_TOPIC:
            self._groups().replay_marker(tp.partition, marker.producer_id, committed=marker.committed)
        return partition, appended.last_offset + 1

    async def _settle(self, unsettled: Collection[_Unsettled], results: dict[TopicPartition, ErrorCode]) -> Results:
        waits = [self._committed(partition, end_offset) for partition, end_offset in unsettled]
        outcomes = await asyncio.gather(*waits, return_exceptions=True)
        for (partition, _), outcome in zip(unsettled, outcomes, strict=True):
            if isinstance(outcome, OttlaError):
                results[partition.topic_partition] = self._refusal(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
        return results

    async def _committed(self, partition: Partition, end_offset: int) -> None:
        """Return when a marker is below the high watermark: synced, where that is asked for, and with the followers."""
        if partition.is_sole or partition.log.flush_due():
            await self._flushing.flush(partition)
        await partition.replicated(end_offset, COMMIT_MS_MAX)

    def _refusal(self, error: OttlaError) -> ErrorCode:
        if isinstance(error, ApiError):
            return error.code
        if isinstance(error, StorageError):
            self._table.directory_failed(error)
        return ErrorCode.KAFKA_STORAGE_ERROR
