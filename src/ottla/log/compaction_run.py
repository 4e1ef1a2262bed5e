"""A round of compaction, carried out. For the record worker only: it imports compiled code.

See `compaction` for what a round is and what stays true. Two passes over the segments: `KeyPass` fills the map,
`CleanPass` rewrites group by group. What becomes of a batch is decided in `compaction_judge`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ottla.log import transaction_index
from ottla.log.compaction import (
    BatchFault,
    CleanedGroup,
    CompactionJob,
    CompactionResult,
    SegmentSource,
    ends_of,
    group_segments,
)
from ottla.log.compaction_judge import Action, BatchJudge, Outcomes, in_transactions, last_offset_of, last_offsets_of
from ottla.log.compaction_read import Chunk, Numbers, RecordParser, Row, Run, read_chunks
from ottla.log.compaction_transactions import TransactionTrail, marker_of
from ottla.log.compaction_write import CleanedSegment, discard_cleaned, emptied_batch, encode_batch
from ottla.log.disk import Disk
from ottla.log.key_map import KeyMap, key_bytes_of
from ottla.wire.batch import CODEC_MASK, CONTROL_BIT, DELETE_HORIZON_BIT, LOG_APPEND_TIME_BIT
from ottla.wire.compiled.batches import RECORD_GROWTH_MAX, Header, Policy, Span, copy_kept, judge_records
from ottla.wire.compression import compress

FAULTS_REPORTED_MAX: Final = 20


class Tally:
    """What a round has done so far."""

    __slots__ = ("bytes_read", "bytes_written", "faults", "faults_count", "records_kept", "records_read", "without_key")

    def __init__(self) -> None:
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_kept = 0
        self.without_key = 0
        self.faults_count = 0
        self.faults: list[BatchFault] = []

    def note_run(self, run: Run, outcomes: Outcomes) -> None:
        self.records_read += int(outcomes.read.sum())
        self.records_kept += int(outcomes.kept.sum())
        spans = run.spans[run.first : run.last]
        self.without_key += int(spans[spans[:, Span.POLICY] != Policy.OPAQUE, Span.WITHOUT_KEY].sum())

    def note_faults(self, source: SegmentSource, chunk: Chunk, faults: dict[int, str]) -> None:
        self.faults_count += len(faults)
        for number in sorted(faults)[: FAULTS_REPORTED_MAX - len(self.faults)]:
            row = chunk.rows[number]
            self.faults.append(
                BatchFault(
                    segment_base_offset=source.base_offset,
                    position=chunk.position + row[Header.POSITION],
                    base_offset=row[Header.BASE_OFFSET],
                    reason=faults[number],
                )
            )


def run_compaction(
    job: CompactionJob,
    disk: Disk,
    *,
    pace: Callable[[int], None] = lambda _bytes: None,
    on_group: Callable[[CleanedGroup], None] = lambda _group: None,
) -> CompactionResult:
    """Carry out a job.

    `pace` hears of every chunk that was read or written, and of each run of one, whose records may be a thousand times
    as long as the chunk; it may wait, and may raise to end the job. `on_group` gets each group as soon as its files are
    complete: it may be put in place while the next one is being written.
    """
    discard_cleaned(disk, job.directory)
    key_map, map_end = KeyPass(job, disk, pace).run()
    clean_pass = CleanPass(job, disk, pace, key_map, map_end)
    groups = []
    for sources in group_segments(job, map_end):
        groups.append(clean_pass.clean(sources))
        on_group(groups[-1])
    tally = clean_pass.tally
    return CompactionResult(
        first_dirty_offset=map_end,
        groups=groups,
        keys=key_map.count,
        map_bytes=key_map.bytes_used,
        bytes_read=tally.bytes_read,
        bytes_written=tally.bytes_written,
        records_read=tally.records_read,
        records_kept=tally.records_kept,
        records_without_key=tally.without_key,
        faults_count=tally.faults_count,
        faults=tally.faults,
    )


class KeyPass:
    """The first pass: the latest offset of each key in the dirty part, as far as the map reaches."""

    def __init__(self, job: CompactionJob, disk: Disk, pace: Callable[[int], None]) -> None:
        self._job = job
        self._disk = disk
        self._pace = pace
        self._map = KeyMap(job.map_bytes_max, job.seed)
        self._parser = RecordParser(job.seed)
        # Those that ended in the clean part are over: this pass does not see their markers.
        self._trail = TransactionTrail(t for t in job.aborted if t.last_offset >= job.first_dirty_offset)

    def run(self) -> tuple[KeyMap, int]:
        """The map, and the offset up to which it knows every record of the dirty part; whole batches only."""
        job = self._job
        map_end = job.first_dirty_offset
        for source, end in zip(job.segments, ends_of(job, job.segments), strict=True):
            if end <= job.first_dirty_offset:
                continue
            for chunk in read_chunks(self._disk, job.directory, source, end):
                self._pace(len(chunk.data))
                is_full, map_end = self._enter(chunk, map_end)
                if is_full:
                    return self._map, map_end
            map_end = max(map_end, end)
        return self._map, map_end

    def _enter(self, chunk: Chunk, map_end: int) -> tuple[bool, int]:
        """Put a chunk's records; returns whether the map is full, and where what it knows ends now."""
        for run in self._parser.runs(chunk, self._policies(chunk), {}):
            self._pace(0)
            if self._map.make_room(run.rows, run.rows and key_bytes_of(run.probes, 0, run.rows)):
                self._map.put(run.probes, 0, run.rows)
                map_end = max(map_end, last_offset_of(chunk.rows[run.last - 1]) + 1)
                continue
            is_full, map_end = self._enter_singly(run, map_end)
            if is_full:
                return True, map_end
        return False, map_end

    def _enter_singly(self, run: Run, map_end: int) -> tuple[bool, int]:
        """Put batch by batch, up to the first for which there is no room."""
        for number in range(run.first, run.last):
            row = run.chunk.rows[number]
            if run.spans[number, Span.POLICY] != Policy.OPAQUE:
                first = int(run.spans[number, Span.FIRST_ROW])
                last = first + row[Header.RECORD_COUNT]
                if not self._map.make_room(last - first, key_bytes_of(run.probes, first, last), if_empty=True):
                    return True, map_end
                self._map.put(run.probes, first, last)
            map_end = max(map_end, last_offset_of(row) + 1)
        return False, map_end

    def _policies(self, chunk: Chunk) -> Numbers:
        is_dirty = last_offsets_of(chunk.headers) >= self._job.first_dirty_offset
        policies = np.where(is_dirty, Policy.BY_KEY, Policy.OPAQUE).astype(np.int64)
        for number in in_transactions(chunk.headers):
            row = chunk.rows[number]
            producer_id, last_offset = row[Header.PRODUCER_ID], last_offset_of(row)
            if row[Header.ATTRIBUTES] & CONTROL_BIT:
                self._trail.is_spent(producer_id, last_offset, marker_of(chunk.batch(row)))
                policies[number] = Policy.OPAQUE
            elif self._trail.is_aborted(producer_id, last_offset):
                policies[number] = Policy.OPAQUE
        return policies


class CleanPass:
    """The second pass: groups of segments, without what the map knows a later record of."""

    def __init__(
        self, job: CompactionJob, disk: Disk, pace: Callable[[int], None], key_map: KeyMap, map_end: int
    ) -> None:
        self.tally = Tally()
        self._job = job
        self._disk = disk
        self._pace = pace
        self._map = key_map
        self._map_end = map_end
        self._parser = RecordParser(job.seed)
        self._judge = BatchJudge(job, map_end)
        bases = [source.base_offset for source in job.segments]
        self._ends = dict(zip(bases, ends_of(job, job.segments), strict=True))

    def clean(self, sources: list[SegmentSource]) -> CleanedGroup:
        """Write one group. If it fails, none of its files is left."""
        target = CleanedSegment(self._disk, self._job.directory, sources, self._job.index_interval_bytes)
        try:
            for source in sources:
                for chunk in read_chunks(self._disk, self._job.directory, source, self._ends[source.base_offset]):
                    self._clean_chunk(source, chunk, target)
            group = target.finish(transaction_index.encode(self._judge.take_kept_aborted()))
        except BaseException:
            target.discard()
            raise
        self.tally.bytes_written += group.size if group.is_changed else 0
        return group

    def _clean_chunk(self, source: SegmentSource, chunk: Chunk, target: CleanedSegment) -> None:
        size_before = target.size
        verdicts = self._judge.before_reading(chunk)
        faults: dict[int, str] = {}
        for run in self._parser.runs(chunk, verdicts.policy, faults):
            self._pace(0)
            self._map.find(run.probes, run.rows, run.found)
            judge_records(
                chunk.headers, run.spans, run.first, run.last,
                run.columns, run.probes, run.found, self._map_end, run.keep,
            )  # fmt: skip
            outcomes = self._judge.after_reading(run, verdicts)
            self.tally.note_run(run, outcomes)
            self._write_run(run, outcomes, target)
        target.flush()
        self.tally.bytes_read += len(chunk.data)
        self.tally.note_faults(source, chunk, faults)
        self._pace(len(chunk.data) + target.size - size_before)

    def _write_run(self, run: Run, outcomes: Outcomes, target: CleanedSegment) -> None:
        """Write what is left of each batch. Batches that go are only passed over."""
        expected = run.first
        for index in np.flatnonzero(outcomes.action != Action.DROP).tolist():
            number = run.first + index
            if number != expected:
                target.change()
            expected = number + 1
            row, action = run.chunk.rows[number], outcomes.action[index]
            if action == Action.KEEP:
                target.keep(run.chunk.batch(row), last_offset_of(row), row[Header.MAX_TIMESTAMP])
            elif action == Action.EMPTY:
                target.replace(emptied_batch(row), last_offset_of(row), row[Header.MAX_TIMESTAMP])
            else:
                self._rewrite(run, number, bool(outcomes.starts_horizon[index]), target)
        if expected != run.last:
            target.change()

    def _rewrite(self, run: Run, number: int, starts_horizon: bool, target: CleanedSegment) -> None:
        row, span = run.chunk.rows[number], run.spans[number].tolist()
        attributes, base_timestamp = row[Header.ATTRIBUTES], row[Header.BASE_TIMESTAMP]
        max_timestamp = row[Header.MAX_TIMESTAMP]
        if not attributes & LOG_APPEND_TIME_BIT:
            max_timestamp = base_timestamp + span[Span.MAX_TIMESTAMP_DELTA]
        new_base_timestamp = base_timestamp
        if starts_horizon:
            attributes |= DELETE_HORIZON_BIT
            new_base_timestamp = self._job.now_ms + self._job.delete_retention_ms
        body = _kept_body(run, row, span, base_timestamp - new_base_timestamp)
        batch = encode_batch(row, attributes, new_base_timestamp, max_timestamp, span[Span.KEPT], body)
        target.replace(batch, last_offset_of(row), max_timestamp)


def _kept_body(run: Run, row: Row, span: Row, shift: int) -> bytes:
    """The kept records of a batch, in its codec, with their timestamp deltas changed by `shift`."""
    first, count = span[Span.FIRST_ROW], row[Header.RECORD_COUNT]
    room = span[Span.END] - span[Span.START] + (RECORD_GROWTH_MAX * count if shift else 0)
    body = np.empty(room, np.uint8)
    end = copy_kept(run.body(span), run.columns, run.keep, first, first + count, shift, body, 0)
    return compress(row[Header.ATTRIBUTES] & CODEC_MASK, body[:end].data)
