"""A round of compaction, carried out. For the record worker only: it imports compiled code.

See `compaction` for what a round is and what stays true. Two passes over the segments: `KeyPass` fills the map,
`CleanPass` rewrites group by group. What becomes of a batch in the second pass is decided in `_policy` from its header
alone, and in `_outcome` when its records have been judged.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final

import numpy as np

from ottla.log.compaction import (
    BatchFault,
    CleanedGroup,
    CompactionJob,
    CompactionResult,
    ProducerTail,
    SegmentSource,
    group_segments,
)
from ottla.log.compaction_read import Chunk, RecordParser, Row, Run, read_chunks
from ottla.log.compaction_transactions import TransactionTrail, encode_transaction_index, marker_of
from ottla.log.compaction_write import CleanedSegment, discard_cleaned
from ottla.log.disk import Disk
from ottla.log.key_map import KeyMap, key_bytes_of
from ottla.model.ids import NO_TIMESTAMP
from ottla.wire.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from ottla.wire.compiled.batches import RECORD_GROWTH_MAX, Header, Policy, Span, copy_kept, judge_records
from ottla.wire.compression import compress
from ottla.wire.crc import crc32c

FAULTS_REPORTED_MAX: Final = 20

_TO_CRC: Final = Struct(">qiibI")
_AFTER_CRC: Final = Struct(">hiqqqhii")
_KEPT_BY_EMPTY: Final = LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT


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

    `pace` hears of every chunk that was read or written, may wait, and may raise to end the job. `on_group` gets each
    group as soon as its files are complete: it may be put in place while the next one is being written.
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


def _last_offset(row: Row) -> int:
    return row[Header.BASE_OFFSET] + row[Header.LAST_OFFSET_DELTA]


class KeyPass:
    """The first pass: the latest offset of each key in the dirty part, as far as the map reaches."""

    def __init__(self, job: CompactionJob, disk: Disk, pace: Callable[[int], None]) -> None:
        self._job = job
        self._disk = disk
        self._pace = pace
        self._map = KeyMap(job.map_bytes_max, job.seed)
        self._parser = RecordParser(job.seed)
        self._trail = TransactionTrail(job.aborted)

    def run(self) -> tuple[KeyMap, int]:
        """The map, and the offset up to which it knows every record of the dirty part; whole batches only."""
        job = self._job
        map_end = job.first_dirty_offset
        ends = [source.base_offset for source in job.segments[1:]] + [job.first_uncleanable_offset]
        for source, end in zip(job.segments, ends, strict=True):
            if end <= job.first_dirty_offset:
                continue
            for chunk in read_chunks(self._disk, job.directory, source):
                self._pace(len(chunk.data))
                is_full, map_end = self._enter(chunk, map_end)
                if is_full:
                    return self._map, map_end
            map_end = max(map_end, end)
        return self._map, map_end

    def _enter(self, chunk: Chunk, map_end: int) -> tuple[bool, int]:
        """Put a chunk's records; returns whether the map is full, and where what it knows ends now."""
        policies = [self._policy(chunk, row) for row in chunk.rows]
        for run in self._parser.runs(chunk, policies, {}):
            if self._map.make_room(run.rows, run.rows and key_bytes_of(run.probes, 0, run.rows)):
                self._map.put(run.probes, 0, run.rows)
                map_end = max(map_end, _last_offset(chunk.rows[run.last - 1]) + 1)
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
            map_end = max(map_end, _last_offset(row) + 1)
        return False, map_end

    def _policy(self, chunk: Chunk, row: Row) -> int:
        attributes, last_offset = row[Header.ATTRIBUTES], _last_offset(row)
        producer_id = row[Header.PRODUCER_ID]
        if attributes & CONTROL_BIT:
            self._trail.is_spent(producer_id, last_offset, marker_of(chunk.batch(row)))
            return Policy.OPAQUE
        is_aborted = self._trail.is_aborted(producer_id, last_offset, attributes & TRANSACTIONAL_BIT != 0)
        if is_aborted or last_offset < self._job.first_dirty_offset:
            return Policy.OPAQUE
        return Policy.BY_KEY


class Verdict:
    """What is known of a batch in the second pass before its records have been judged."""

    __slots__ = ("is_discarded", "is_kept_empty", "is_spent_marker", "policy")

    def __init__(self, policy: int, *, is_discarded: bool, is_kept_empty: bool, is_spent_marker: bool) -> None:
        self.policy = policy
        self.is_discarded = is_discarded
        """None of its records stays."""
        self.is_kept_empty = is_kept_empty
        """Its header stays, even if no record does."""
        self.is_spent_marker = is_spent_marker
        """A transaction's marker that nobody needs once its delete horizon has passed."""


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
        self._trail = TransactionTrail(job.aborted)
        self._producers: dict[int, ProducerTail] = {tail.producer_id: tail for tail in job.producers}

    def clean(self, sources: list[SegmentSource]) -> CleanedGroup:
        """Write one group. If it fails, none of its files is left."""
        target = CleanedSegment(self._disk, self._job.directory, sources, self._job.index_interval_bytes)
        try:
            for source in sources:
                for chunk in read_chunks(self._disk, self._job.directory, source):
                    self._clean_chunk(source, chunk, target)
            transactions, self._trail.kept_aborted = self._trail.kept_aborted, []
            group = target.finish(encode_transaction_index(transactions))
        except BaseException:
            target.discard()
            raise
        self.tally.bytes_written += group.size if group.is_changed else 0
        return group

    def _clean_chunk(self, source: SegmentSource, chunk: Chunk, target: CleanedSegment) -> None:
        size_before = target.size
        verdicts = [self._verdict(chunk, row) for row in chunk.rows]
        faults: dict[int, str] = {}
        for run in self._parser.runs(chunk, [verdict.policy for verdict in verdicts], faults):
            self._map.find(run.probes, run.rows, run.found)
            judge_records(
                chunk.headers, run.spans, run.first, run.last,
                run.columns, run.probes, run.found, self._map_end, run.keep,
            )  # fmt: skip
            spans = run.spans[run.first : run.last].tolist()
            for number, span in zip(range(run.first, run.last), spans, strict=True):
                self._outcome(run, chunk.rows[number], span, verdicts[number], target)
        target.flush()
        self.tally.bytes_read += len(chunk.data)
        self.tally.note_faults(source, chunk, faults)
        self._pace(len(chunk.data) + target.size - size_before)

    def _verdict(self, chunk: Chunk, row: Row) -> Verdict:
        attributes, last_offset = row[Header.ATTRIBUTES], _last_offset(row)
        producer_id = row[Header.PRODUCER_ID]
        is_control = attributes & CONTROL_BIT != 0
        horizon_passed = attributes & DELETE_HORIZON_BIT != 0 and row[Header.BASE_TIMESTAMP] <= self._job.now_ms
        if is_control:
            goes = self._trail.is_spent(producer_id, last_offset, marker_of(chunk.batch(row)))
            is_discarded = goes and horizon_passed
        else:
            goes = self._trail.is_aborted(producer_id, last_offset, attributes & TRANSACTIONAL_BIT != 0)
            is_discarded = goes
        if is_discarded or (not is_control and row[Header.BASE_OFFSET] >= self._map_end):
            policy = Policy.OPAQUE
        elif is_control:
            policy = Policy.KEEP
        else:
            policy = Policy.BY_KEY_NO_TOMBSTONES if horizon_passed else Policy.BY_KEY
        # The last batch stays in any case: it alone says where the cleaned part ends.
        is_kept_empty = last_offset + 1 == self._job.first_uncleanable_offset or self._is_last_of_producer(row)
        return Verdict(
            policy, is_discarded=is_discarded, is_kept_empty=is_kept_empty, is_spent_marker=is_control and goes
        )

    def _is_last_of_producer(self, row: Row) -> bool:
        tail = self._producers.get(row[Header.PRODUCER_ID])
        if tail is None:
            return False
        if tail.last_data_offset >= 0:
            return _last_offset(row) == tail.last_data_offset
        is_control = row[Header.ATTRIBUTES] & CONTROL_BIT != 0
        return is_control and row[Header.PRODUCER_EPOCH] == tail.producer_epoch

    def _outcome(self, run: Run, row: Row, span: Row, verdict: Verdict, target: CleanedSegment) -> None:
        """Write what is left of one batch."""
        count = row[Header.RECORD_COUNT]
        self.tally.records_read += count
        is_opaque = span[Span.POLICY] == Policy.OPAQUE
        kept = 0 if verdict.is_discarded else count if is_opaque else span[Span.KEPT]
        self.tally.records_kept += kept
        self.tally.without_key += 0 if is_opaque else span[Span.WITHOUT_KEY]
        if kept == 0 and not (is_opaque and not verdict.is_discarded):
            self._empty(run, row, verdict, target)
            return
        starts_horizon = (
            not is_opaque
            and (span[Span.KEPT_TOMBSTONES] > 0 or verdict.is_spent_marker)
            and not row[Header.ATTRIBUTES] & DELETE_HORIZON_BIT
        )
        if kept == count and not starts_horizon:
            target.keep(run.chunk.batch(row), _last_offset(row), row[Header.MAX_TIMESTAMP])
        else:
            self._rewrite(run, row, span, target, starts_horizon=starts_horizon)

    def _empty(self, run: Run, row: Row, verdict: Verdict, target: CleanedSegment) -> None:
        """No record is left: the header goes too, unless it is needed."""
        if not verdict.is_kept_empty:
            target.change()
        elif row[Header.RECORD_COUNT] == 0:
            target.keep(run.chunk.batch(row), _last_offset(row), row[Header.MAX_TIMESTAMP])
        else:
            attributes = row[Header.ATTRIBUTES] & _KEPT_BY_EMPTY
            batch = _encode_batch(row, attributes, NO_TIMESTAMP, row[Header.MAX_TIMESTAMP], 0, b"")
            target.replace(batch, _last_offset(row), row[Header.MAX_TIMESTAMP])

    def _rewrite(self, run: Run, row: Row, span: Row, target: CleanedSegment, *, starts_horizon: bool) -> None:
        attributes, base_timestamp = row[Header.ATTRIBUTES], row[Header.BASE_TIMESTAMP]
        max_timestamp = row[Header.MAX_TIMESTAMP]
        if not attributes & LOG_APPEND_TIME_BIT:
            max_timestamp = base_timestamp + span[Span.MAX_TIMESTAMP_DELTA]
        new_base_timestamp = base_timestamp
        if starts_horizon:
            attributes |= DELETE_HORIZON_BIT
            new_base_timestamp = self._job.now_ms + self._job.delete_retention_ms
        body = _kept_body(run, row, span, base_timestamp - new_base_timestamp)
        batch = _encode_batch(row, attributes, new_base_timestamp, max_timestamp, span[Span.KEPT], body)
        target.replace(batch, _last_offset(row), max_timestamp)


def _kept_body(run: Run, row: Row, span: Row, shift: int) -> bytes:
    """The kept records of a batch, in its codec, with their timestamp deltas changed by `shift`."""
    first, count = span[Span.FIRST_ROW], row[Header.RECORD_COUNT]
    room = span[Span.END] - span[Span.START] + (RECORD_GROWTH_MAX * count if shift else 0)
    body = np.empty(room, np.uint8)
    end = copy_kept(run.body(span), run.columns, run.keep, first, first + count, shift, body, 0)
    return compress(row[Header.ATTRIBUTES] & CODEC_MASK, body[:end].data)


def _encode_batch(row: Row, attributes: int, base_timestamp: int, max_timestamp: int, count: int, body: bytes) -> bytes:
    """A batch with new records and the place, the offsets and the producer of an old one."""
    checked = _AFTER_CRC.pack(
        attributes, row[Header.LAST_OFFSET_DELTA], base_timestamp, max_timestamp,
        row[Header.PRODUCER_ID], row[Header.PRODUCER_EPOCH], row[Header.BASE_SEQUENCE], count,
    ) + body  # fmt: skip
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(body)
    prefix = _TO_CRC.pack(row[Header.BASE_OFFSET], length, row[Header.LEADER_EPOCH], MAGIC, crc32c(checked))
    return prefix + checked
