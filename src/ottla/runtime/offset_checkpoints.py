"""What is stored of each partition's offsets: recovery point, log start and high watermark, in a file per directory.

Where the dirty part of a compacted log starts is stored on the way, whenever that has changed.

What an editor must keep true:
- The files of a directory are written by one at a time, and what is written is looked up once it is one's turn: what
  was looked up before may be too high by then, because a log was cut.
- A start that rises is stored before anything is deleted (`raise_starts`).
- A log is cut while one holds the turn (`lowered`), after the lower offsets are on the medium. Else the next checkpoint
  may store how high the log was, and after a crash the log seems to have lost what was safe. Where there is no room to
  store them nothing is cut: who has begun to cut must come to the end of it before anything is appended.
- Whoever writes may be cancelled, its thread goes on: the turn ends with the thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.log.directory import LogDirectory
from ottla.model.errors import ApiError, ErrorCode, OttlaError, OutOfSpaceError, StorageError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition
    from ottla.runtime.world import World

LOGS_PER_TURN: Final = 8

Offsets: TypeAlias = dict[TopicPartition, int]


class OffsetCheckpoints:
    """The checkpoint files of all log directories."""

    __slots__ = ("_directory_of", "_locks", "_on_failure", "_world")

    def __init__(
        self,
        world: World,
        directory_of: Callable[[TopicPartition], LogDirectory | None],
        on_failure: Callable[[StorageError], object],
    ) -> None:
        self._world = world
        self._directory_of = directory_of
        self._on_failure = on_failure
        self._locks: dict[LogDirectory, asyncio.Lock] = {}

    def turn(self, directory: LogDirectory) -> asyncio.Lock:
        """Held by whoever writes the files of a directory, or changes what they speak of."""
        lock = self._locks.get(directory)
        if lock is None:
            lock = self._locks[directory] = asyncio.Lock()
        return lock

    async def forget(self, directories: Iterable[LogDirectory]) -> None:
        """Let go of what is stored of partitions that are not there any more. Errors as those of `_in_each`.

        Before others get their names: a start or a recovery point of a former life would be taken for theirs.
        """
        await self._in_directories([(each, ()) for each in directories if each.online], self._store_in)

    async def store(self, partitions: Iterable[Partition]) -> None:
        """Store recovery points and log starts of the partitions that are open. Errors as those of `_in_each`."""
        await self._in_each(partitions, self._store_in)

    async def _store_in(self, directory: LogDirectory, partitions: Iterable[Partition]) -> None:
        recovery_points: Offsets = {}
        log_starts: Offsets = {}
        for partition in partitions:
            opened, tp = partition.log_or_none, partition.topic_partition
            if opened is None:
                continue
            recovery_points[tp] = opened.recovery_point
            if opened.log_start_offset > opened.segments[0].base_offset or tp in directory.log_start_offsets:
                log_starts[tp] = opened.log_start_offset
        await self._write(directory, recovery_points, log_starts, {})

    async def _in_each(
        self,
        partitions: Iterable[Partition],
        store: Callable[[LogDirectory, Iterable[Partition]], Awaitable[None]],
    ) -> None:
        """Have stored what there is in each directory, whatever becomes of the others.

        One that fails goes offline. OutOfSpaceError if one is full, when all have had their turn.
        """
        await self._in_directories(self._by_directory(partitions), store)

    async def _in_directories(
        self,
        directories: Iterable[tuple[LogDirectory, Iterable[Partition]]],
        store: Callable[[LogDirectory, Iterable[Partition]], Awaitable[None]],
    ) -> None:
        full: OutOfSpaceError | None = None
        for directory, there in directories:
            async with self.turn(directory):
                try:
                    await store(directory, self._still_in(directory, there))
                except OutOfSpaceError as error:
                    full = error
                except StorageError as error:
                    self._on_failure(error)
        if full is not None:
            raise full

    async def raise_starts(
        self, starts: Mapping[Partition, int], begin_at: Callable[[Partition, int], None]
    ) -> dict[Partition, OttlaError]:
        """Store where logs begin from now on, and then have `begin_at` take away what is before; says where it failed.

        In this order: names that go may go in any order, and a crash that leaves a hole between them must not make it
        look as if the log had lost what follows. Where there is no room to store anything they go all the same, which
        makes some. A directory that fails goes offline.
        """
        lost = ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the partition is in no log directory that is online")
        failed: dict[Partition, OttlaError] = dict.fromkeys(starts, lost)
        for directory, there in self._by_directory(starts):
            async with self.turn(directory):
                # One that was cut meanwhile may end before that.
                raised = [
                    partition
                    for partition in self._still_in(directory, there)
                    if partition.log_or_none is not None and starts[partition] <= partition.high_watermark
                ]
                error = await self._why_not_written(directory, {p.topic_partition: starts[p] for p in raised})
                if error is not None:
                    failed.update(dict.fromkeys(raised, error))
                if isinstance(error, StorageError):
                    continue
                for number, partition in enumerate(raised, 1):
                    if _begins_at(partition, starts[partition], begin_at) and error is None:
                        del failed[partition]
                    if number % LOGS_PER_TURN == 0:
                        await asyncio.sleep(0)
        return failed

    async def _why_not_written(self, directory: LogDirectory, log_starts: Offsets) -> OttlaError | None:
        try:
            await self._write(directory, {}, log_starts, {})
        except OutOfSpaceError as error:
            return error
        except StorageError as error:
            self._on_failure(error)
            return error
        return None

    async def store_replicated_high_watermarks(self, partitions: Iterable[Partition]) -> None:
        """Store those of replicated partitions that are open; a sole replica's is the end of its log."""
        await self.store_high_watermarks(partition for partition in partitions if len(partition.replicas) > 1)

    async def store_high_watermarks(self, partitions: Iterable[Partition]) -> None:
        """Store those of all that are open: at the next start a sole replica may have followers."""
        await self._in_each(partitions, self._store_high_watermarks_in)

    async def _store_high_watermarks_in(self, directory: LogDirectory, partitions: Iterable[Partition]) -> None:
        opened = (partition for partition in partitions if partition.log_or_none is not None)
        marks = {partition.topic_partition: partition.high_watermark for partition in opened}
        await self._write(directory, {}, {}, marks)

    def stored_high_watermark(self, tp: TopicPartition) -> int:
        """The high watermark as it was stored last; 0 if it was not."""
        directory = self._directory_of(tp)
        return 0 if directory is None else directory.high_watermarks.get(tp, 0)

    @asynccontextmanager
    async def lowered(self, partition: Partition, offset: int, *, anew: bool = False) -> AsyncIterator[None]:
        """Cut the partition's log at `offset` in here, or begin it `anew` there: what is stored is not above where a
        crash may leave it, and stays so."""
        tp = partition.topic_partition
        directory = self._directory_of(tp)
        if directory is None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{tp} is in no log directory")
        async with self.turn(directory):
            opened = partition.log
            safe = opened.safe_to_begin_anew(offset) if anew else opened.safe_after_cut(offset)
            points = {tp: safe} if directory.recovery_points.get(tp, 0) > safe else {}
            starts = {tp: offset} if directory.log_start_offsets.get(tp, 0) > offset else {}
            marks: Offsets = {}
            if directory.high_watermarks.get(tp, 0) > safe:
                # What is appended next may be committed by nobody for a while.
                end_offset = offset if anew else opened.end_after_cut(offset)
                marks = {tp: min(directory.high_watermarks[tp], end_offset)}
            directory.cleaner.truncate(tp, offset)
            await self._write(directory, points, starts, marks)
            yield

    async def _write(self, directory: LogDirectory, points: Offsets, starts: Offsets, marks: Offsets) -> None:
        if not (points or starts or marks) and directory.is_stored:
            return

        def write() -> None:  # runs in a thread
            directory.checkpoint(recovery_points=points, log_start_offsets=starts, high_watermarks=marks)

        writing = asyncio.ensure_future(self._world.offload.run(write))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            # Who has the next turn writes the same files.
            await asyncio.gather(writing, return_exceptions=True)
            raise

    def _by_directory(self, partitions: Iterable[Partition]) -> list[tuple[LogDirectory, list[Partition]]]:
        found: dict[LogDirectory, list[Partition]] = {}
        for partition in partitions:
            if partition.log_or_none is not None:
                directory = self._directory_of(partition.topic_partition)
                if directory is not None and directory.online:
                    found.setdefault(directory, []).append(partition)
        return list(found.items())

    def _still_in(self, directory: LogDirectory, partitions: Iterable[Partition]) -> Iterable[Partition]:
        return (
            partition
            for partition in partitions
            if not partition.gone and self._directory_of(partition.topic_partition) is directory
        )


def _begins_at(partition: Partition, offset: int, begin_at: Callable[[Partition, int], None]) -> bool:
    """Let a log begin there, unless it went meanwhile; whether it does. Its directory may fail over it."""
    opened = partition.log_or_none
    if opened is None or partition.gone:
        return False
    begin_at(partition, offset)
    return partition.log_or_none is opened and opened.log_start_offset >= offset
