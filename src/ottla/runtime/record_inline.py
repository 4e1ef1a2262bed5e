"""Record work in the calling process, at once: for the simulator, which has no other processes, and for tests.

Imports compiled code. A broker in production uses `RecordWorker`.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.log.compaction import CleanedGroup, CompactionJob, CompactionResult
from ottla.log.compaction_run import run_compaction
from ottla.log.disk import Disk
from ottla.wire.record_checks import recompress, validated


class InlineRecordWork:
    """What `RecordWorker` does, on a disk that is handed in."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def validate(
        self, batch: bytes, *, requires_keys: bool, timestamp_range: tuple[int, int] | None = None
    ) -> bytes:
        return validated(batch, requires_keys=requires_keys, timestamp_range=timestamp_range)

    async def recompress(self, batch: bytes, codec: int, level: int | None, batch_bytes_max: int) -> bytes:
        return recompress(batch, codec, level, batch_bytes_max)

    async def compact(
        self, job: CompactionJob, on_group: Callable[[CleanedGroup], None] | None = None
    ) -> CompactionResult:
        return run_compaction(job, self._disk, on_group=on_group or (lambda _group: None))

    async def warm(self) -> None:
        pass

    async def close(self) -> None:
        pass
