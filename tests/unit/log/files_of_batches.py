"""Segments written by hand, for tests of what compaction reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.log import names
from ottla.log.compaction import CompactionJob, CompactionResult, SegmentSource
from ottla.log.compaction_run import run_compaction
from ottla.log.disk import Disk
from ottla.wire.batch import BatchHeader, iterate
from ottla.wire.records import Record
from ottla.wire.records import iterate as iterate_records
from tests.unit.log.crash_disk import CrashDisk

Batch = bytes | bytearray


class FilesOfBatches:
    """A log as files: segments with batches, cleaned and put in place as the broker would."""

    def __init__(self, disk: Disk | None = None, directory: str = "/log") -> None:
        self.disk: Disk = CrashDisk() if disk is None else disk
        self.directory = directory
        self.segments: list[SegmentSource] = []
        self.disk.makedirs(directory)

    def path(self, base_offset: int, kind: str, suffix: str = "") -> str:
        return names.segment_path(self.directory, base_offset, kind, suffix)

    def add_segment(self, base_offset: int, batches: Sequence[Batch]) -> None:
        data = b"".join(batches)
        self.disk.open(self.path(base_offset, names.LOG), create=True).pwrite(data, 0)
        self.segments.append(SegmentSource(base_offset, len(data)))

    def job(self, end_offset: int, **changes: Any) -> CompactionJob:
        settings: dict[str, Any] = {
            "directory": self.directory,
            "segments": self.segments,
            "first_dirty_offset": 0,
            "first_uncleanable_offset": end_offset,
            "now_ms": 1_000_000,
            "delete_retention_ms": 1000,
            "segment_bytes": 1 << 30,
            "segment_index_bytes": 10 << 20,
            "index_interval_bytes": 4096,
            "seed": 4711,
        }
        return CompactionJob(**{**settings, **changes})

    def compact(self, end_offset: int, **changes: Any) -> CompactionResult:
        """A round, put in place."""
        result = run_compaction(self.job(end_offset, **changes), self.disk)
        self.put_in_place(result)
        return result

    def put_in_place(self, result: CompactionResult) -> None:
        for group in result.groups:
            if not group.is_changed:
                continue
            for kind in names.SEGMENT_KINDS:
                for base_offset in group.sources:
                    self.disk.remove(self.path(base_offset, kind))
                cleaned = self.path(group.base_offset, kind, names.CLEANED)
                if self.disk.exists(cleaned):
                    self.disk.rename(cleaned, self.path(group.base_offset, kind))
            left = [source for source in self.segments if source.base_offset not in group.sources]
            self.segments = [*left, SegmentSource(group.base_offset, group.size)]
            self.segments.sort(key=lambda source: source.base_offset)

    def names(self) -> list[str]:
        return self.disk.listdir(self.directory)

    def batches(self) -> list[tuple[BatchHeader, bytes]]:
        """Every batch of the log."""
        found = []
        for source in self.segments:
            data = self.disk.read(self.path(source.base_offset, names.LOG))
            assert len(data) == source.size
            found += [(header, data[at : at + header.size]) for at, header in iterate(memoryview(data))]
        return found

    def records(self) -> list[Record]:
        return [record for _, batch in self.batches() for record in iterate_records(batch)]


def view_of(records: Sequence[Record]) -> dict[bytes, bytes]:
    """What a reader of the whole log believes at its end; records without a key say nothing."""
    view: dict[bytes, bytes] = {}
    for record in records:
        if record.key is None:
            continue
        if record.value is None:
            view.pop(record.key, None)
        else:
            view[record.key] = record.value
    return view
