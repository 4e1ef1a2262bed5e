"""Opening a log: what is on disk becomes segments, offsets, epochs and producers again.

Theory of operation. After a clean stop everything on disk is complete, so the end of the log is found from the last
index entry on and nothing else is read. After an unclean stop anything written since the last sync may be missing,
torn or zeros. Below the recovery point everything was synced; from the segment that holds it on, every batch is
checked, the first bad one ends the log there, and indexes, epochs and producers are made anew from what is good.

What an editor must keep true:
- Nothing below the recovery point is ever cut off. If a bad batch lies there, or the log ends before it, something that
  was safe is gone: CorruptLogError, and a replica or a person decides.
- Each step may be interrupted and run again. Files are cut, renamed or removed only in an order in which a second start
  comes to the same end.
- Transaction indexes are made anew from the recovery point on. Below it they were synced with the batches; one that is
  damaged nevertheless is made anew, too.
- Indexes that nothing else looks at are looked at by their sizes, whenever a log is opened: one that was emptied from
  outside would hide records from lookups by time. Nothing is read for it, unless a size is suspicious.
- The segment just below the recovery point may have indexes that were never synced: the recovery point may have reached
  the end of the log before that segment was sealed. They are checked, and made anew if anything is missing.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final

from ottla.log import gaps, names, producer_replay
from ottla.log.disk import Disk
from ottla.log.epochs import LeaderEpochs
from ottla.log.handles import OpenFiles
from ottla.log.index import CorruptIndexError, OffsetIndex, TimeIndex
from ottla.log.producer_state import ProducerStates
from ottla.log.replacement import finish_interrupted
from ottla.log.scan import TornBatchError, walk
from ottla.log.segment import Located, Segment
from ottla.log.snapshot_files import SnapshotFiles
from ottla.log.transaction_index import AbortedTransaction
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import CorruptLogError
from ottla.wire.batch import BatchHeader

WALKED_BYTES_MAX: Final = 64 << 10
"""So much of a segment is looked at to find out whether its records have no times, or its time index was emptied."""


@dataclass(slots=True)
class LoadedLog:
    """A log as it was found, or made."""

    directory: str
    log_start_offset: int
    recovery_point: int
    snapshots: SnapshotFiles
    epochs: LeaderEpochs
    log_end_offset: int = 0
    segments: list[Segment] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    is_new: bool = False
    """The directory was made just now; its own name is not synced."""
    names_synced: bool = False
    """Every name in the directory is on the medium."""

    def rebuild_producers(self, end_offset: int) -> None:
        producer_replay.rebuild(
            self.producers,
            self.snapshots,
            self.segments,
            log_start_offset=self.log_start_offset,
            end_offset=end_offset,
        )


def load(
    directory: str,
    config: TopicConfig,
    disk: Disk,
    files: OpenFiles,
    *,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
    now_ms: int,
    producer_id_expiration_ms: int,
) -> LoadedLog:
    """Open what is in `directory`, or begin an empty log there. Reads much if not `clean`."""
    is_new = not disk.is_dir(directory)
    if is_new:
        disk.makedirs(directory)
        # It has nothing that a crash could have torn, unless it had; and it may be opened on the loop.
        clean = clean or not recovery_point
    listing = [] if is_new else finish_interrupted(disk, directory, disk.listdir(directory))
    log = LoadedLog(
        directory=directory,
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        snapshots=SnapshotFiles(directory, disk, _offsets(listing, names.PRODUCER_SNAPSHOT)),
        epochs=LeaderEpochs(disk, f"{directory}/{names.LEADER_EPOCHS}"),
        is_new=is_new,
    )
    if names.LEADER_EPOCHS in listing:
        log.epochs.load()
    trusted_until = sys.maxsize if clean else recovery_point
    log.segments = _open_segments(directory, listing, config, disk, files, now_ms, trusted_until)
    if not (clean and _load_closed(log)):
        clean = False
        # A snapshot beyond was never synced, and may even be that of a past that a crash took.
        log.snapshots.remove_outside(log_start_offset, recovery_point)
        _Recovery(log, config, disk).run()
    _check_transaction_indexes(log)
    log.names_synced = clean and bool(log.segments) and all(segment.synced for segment in log.segments[:-1])
    _begin_where_needed(log, config, files, now_ms)
    _finish(log, clean, now_ms, producer_id_expiration_ms)
    if not clean:
        gaps.expect_none_from(disk, directory, log.log_end_offset)
        gaps.unmark(disk, directory, log.segments)
        # What was removed must not come back when the recovery point has passed it.
        disk.sync_dir(directory)
    return log


def new_segment(
    directory: str, base_offset: int, config: TopicConfig, files: OpenFiles, *, size: int = 0, now_ms: int = 0
) -> Segment:
    """A segment with the settings of its topic."""
    segment = Segment(directory, base_offset, files, size=size, created_ms=now_ms)
    segment.set_index_config(config.index_interval_bytes, config.segment_index_bytes)
    segment.reserved_bytes = config.segment_bytes if config.preallocate else 0
    return segment


def _offsets(listing: Sequence[str], wanted: str) -> list[int]:
    parsed = map(names.parse_segment_name, listing)
    return sorted(name[0] for name in parsed if name is not None and name[1] == wanted and not name[2])


def _open_segments(
    directory: str,
    listing: list[str],
    config: TopicConfig,
    disk: Disk,
    files: OpenFiles,
    now_ms: int,
    trusted_until: int,
) -> list[Segment]:
    base_offsets = _offsets(listing, names.LOG)
    present = set(listing)
    segments = []
    for base_offset, end_offset in pairwise([*base_offsets, sys.maxsize]):
        size = disk.size(names.segment_path(directory, base_offset, names.LOG))
        segment = new_segment(directory, base_offset, config, files, size=size, now_ms=now_ms)
        segment.sealed = segment.synced = base_offset != base_offsets[-1]
        is_trusted = end_offset <= trusted_until
        if not _has_indexes(segment, present) or (is_trusted and not _indexes_may_be_whole(segment, disk)):
            # A crash between the creation of the files, or somebody removed or cut them. Bad batches are found below.
            segment.rebuild(check_crc=False, sync=segment.sealed)
            segment.size = size
        if f"{base_offset:020d}{names.TRANSACTION_INDEX}" in present:
            segment.note_transactions()
        segments.append(segment)
    for kind in names.INDEX_KINDS:
        for base_offset in sorted(set(_offsets(listing, kind)).difference(base_offsets)):
            disk.remove(names.segment_path(directory, base_offset, kind))
    return segments


def _has_indexes(segment: Segment, present: set[str]) -> bool:
    stem = f"{segment.base_offset:020d}"
    return stem + names.OFFSET_INDEX in present and stem + names.TIME_INDEX in present


def _indexes_may_be_whole(segment: Segment, disk: Disk) -> bool:
    """Whether the index files have sizes that can be right. Batches are looked at only if one is strangely empty."""
    offsets_bytes = disk.size(segment.path_of(names.OFFSET_INDEX))
    times_bytes = disk.size(segment.path_of(names.TIME_INDEX))
    if offsets_bytes % OffsetIndex.ENTRY.size or times_bytes % TimeIndex.ENTRY.size:
        return False
    has_offsets = offsets_bytes > 0 or segment.size <= segment.index_interval_bytes
    if not segment.size or (has_offsets and times_bytes):
        return True
    # Records may have no timestamps, and the last batch alone may be longer than the interval.
    try:
        for position, header in walk(segment.log.get(), 0, segment.size, next_offset=segment.base_offset):
            if header.max_timestamp >= 0 and not times_bytes:
                return False
            if position > segment.index_interval_bytes and not has_offsets:
                return False
            if position > WALKED_BYTES_MAX:
                break
    except TornBatchError:
        pass  # Whoever reads the batches finds that out, too.
    return True


def _load_closed(log: LoadedLog) -> bool:
    """Take a log that was closed properly; False if it is not like that after all."""
    if log.segments:
        try:
            log.log_end_offset = log.segments[-1].load_tail()
        except (TornBatchError, CorruptIndexError):
            return False
        if log.log_end_offset < log.recovery_point:
            return False  # A file was lost or cut since, and at the end of a batch nothing else tells.
        log.recovery_point = log.log_end_offset
    return True


def _check_transaction_indexes(log: LoadedLog) -> None:
    """Load those that recovery has not made anew; one that cannot be right is made from the batches."""
    for segment in log.segments:
        if segment.transactions is not None and not segment.transactions.is_loaded:
            try:
                segment.load_transactions()
            except (CorruptIndexError, FileNotFoundError):
                aborted = producer_replay.aborted_in_segment(
                    log.snapshots, log.segments, segment, log_start_offset=log.log_start_offset
                )
                segment.replace_transactions(aborted)


def _begin_where_needed(log: LoadedLog, config: TopicConfig, files: OpenFiles, now_ms: int) -> None:
    """A log has a segment, and it does not end before it starts."""
    if log.segments and log.log_end_offset < log.log_start_offset:
        # The records up to the start were deleted on request, and then the end was lost in a crash.
        _remove(log.segments)
        log.segments = []
        log.epochs.clear()
        log.producers.clear()
    if not log.segments:
        segment = new_segment(log.directory, log.log_start_offset, config, files, now_ms=now_ms)
        segment.create()
        log.segments = [segment]
        log.names_synced = False
        log.log_end_offset = log.log_start_offset
        log.recovery_point = log.log_start_offset
    log.log_start_offset = max(log.log_start_offset, log.segments[0].base_offset)


def _finish(log: LoadedLog, clean: bool, now_ms: int, producer_id_expiration_ms: int) -> None:
    log.epochs.truncate_from_end(log.log_end_offset)
    log.epochs.truncate_from_start(log.log_start_offset)
    if log.snapshots.offsets:
        log.snapshots.remove_strays([segment.base_offset for segment in log.segments])
    if clean and log.snapshots.offsets:
        # Without any snapshot nobody has ever written with a producer id, or the log is older than snapshots.
        log.rebuild_producers(log.log_end_offset)
    log.producers.expire(now_ms, producer_id_expiration_ms)


def _remove(segments: Sequence[Segment]) -> None:
    """Remove segments that nobody reads yet, the last one first, so that a crash leaves no gap."""
    for segment in reversed(segments):
        segment.remove_files()


class _Recovery:
    """The work after an unclean stop."""

    __slots__ = ("_config", "_disk", "_log")

    def __init__(self, log: LoadedLog, config: TopicConfig, disk: Disk) -> None:
        self._log = log
        self._config = config
        self._disk = disk

    def run(self) -> None:
        log = self._log
        self._drop_deleted()
        if self._config.cleanup_compact:
            self._drop_replaced()
        first = max(bisect_right([segment.base_offset for segment in log.segments], log.recovery_point) - 1, 0)
        log.log_end_offset = log.segments[first].base_offset if log.segments else log.log_start_offset
        if first > 0:
            self._check_last_synced(log.segments[first - 1])
        # The file may speak of batches that an earlier crash took; those that are here say it themselves.
        log.epochs.truncate_from_end(log.log_end_offset)
        log.rebuild_producers(log.log_end_offset)
        for index, segment in enumerate(log.segments[first:], first):
            if self._is_after_a_hole(index):
                self._drop_from(index)
                break
            if not self._recover(segment, index):
                break
        if log.segments:
            log.segments[-1].load_tail()
        self._check_nothing_is_missing()
        log.recovery_point = min(log.recovery_point, log.log_end_offset)

    def _recover(self, segment: Segment, index: int) -> bool:
        """Check every batch; False if the log ends inside of this segment."""
        log = self._log
        aborted: list[AbortedTransaction] = []
        log.log_end_offset, torn = segment.rebuild(check_crc=True, on_batch=partial(self._note, segment, aborted))
        segment.replace_transactions(aborted)
        if torn is None:
            if segment.sealed:
                segment.rest()
            return True
        if log.log_end_offset < log.recovery_point:
            raise CorruptLogError(
                f"{segment.path}: {torn}; everything below offset {log.recovery_point} was safe on disk"
            )
        # In this order: a crash in between must not leave later segments behind a hole.
        self._drop_from(index + 1)
        self._cut(segment)
        return False

    def _cut(self, segment: Segment) -> None:
        """Take away what is not good, and sync it: the recovery point may pass this place before another sync does."""
        segment.cut_back()
        segment.log.get().sync()

    def _note(self, segment: Segment, aborted: list[AbortedTransaction], position: int, header: BatchHeader) -> None:
        log, epoch = self._log, header.partition_leader_epoch
        if epoch > log.epochs.latest:
            log.epochs.assign(epoch, header.base_offset)
        elif 0 <= epoch < log.epochs.latest:
            # A crash has undone a truncation, but not what was written after it.
            raise TornBatchError(position, f"leader epoch {epoch} cannot follow epoch {log.epochs.latest}")
        if header.producer_id >= 0:
            read_batch = partial(segment.batch_at, Located(position, header))
            completed = producer_replay.replay(log.producers, header, read_batch)
            if completed is not None and completed.aborted:
                aborted.append(log.producers.index_entry_of(completed))

    def _is_after_a_hole(self, index: int) -> bool:
        """Whether a crash took what was between this segment and the one before: the end of it, or whole segments."""
        log, segment = self._log, self._log.segments[index]
        # Of what was deleted before the start, some may be back; whatever is missing there is no loss.
        end_offset = max(log.log_end_offset, log.log_start_offset)
        if log.log_end_offset <= segment.base_offset <= end_offset or end_offset < log.recovery_point:
            return False
        return not gaps.is_known(self._disk, log.directory, log.log_end_offset, segment.base_offset)

    def _drop_from(self, index: int) -> None:
        """Remove the segments after the end of the log."""
        log = self._log
        if index < len(log.segments):
            _remove(log.segments[index:])
            del log.segments[index:]
            self._disk.sync_dir(log.directory)
        log.segments[-1].sealed = log.segments[-1].synced = False

    def _check_nothing_is_missing(self) -> None:
        log = self._log
        if log.segments and log.log_start_offset <= log.log_end_offset < log.recovery_point:
            raise CorruptLogError(
                f"{log.directory} ends at offset {log.log_end_offset}, but everything below offset "
                f"{log.recovery_point} was safe on disk"
            )

    def _check_last_synced(self, segment: Segment) -> None:
        """The segment before the first that is recovered: its batches are safe, its indexes may never have been."""
        try:
            complete = segment.indexes.is_complete(segment.log.get(), segment.size)
        except (CorruptIndexError, TornBatchError):
            complete = False
        if not complete:
            # Synced before they replace the old ones, which may well be on the medium: the next crash may come at once,
            # and with another recovery point nobody will look here again.
            next_offset, torn = segment.rebuild(check_crc=False, sync=True)
            if torn is not None:
                # Nothing follows in this segment: these are the remains of a write that failed, or was cut off before.
                if next_offset < self._log.log_end_offset:
                    raise CorruptLogError(f"{segment.path}: {torn}") from torn
                self._cut(segment)
        segment.synced = False
        segment.rest()

    def _drop_deleted(self) -> None:
        """Segments below the start are deleted records. Some of them may have come back, and a hole between them and
        what is left says nothing about that."""
        segments, start = self._log.segments, self._log.log_start_offset
        count = sum(segment.base_offset <= start for segment in segments[1:])
        for segment in segments[:count]:
            segment.remove_files()
        del segments[:count]

    def _drop_replaced(self) -> None:
        """Segments overlap only where a crash came between the renames of a replacement: the first one covers both."""
        segments = self._log.segments
        kept: list[Segment] = []
        end = 0
        for segment in segments[:-1]:
            if segment.base_offset < end:
                _remove([segment])
                continue
            kept.append(segment)
            try:
                end = segment.load_tail()
            except (TornBatchError, CorruptIndexError):
                end = segment.base_offset
            segment.rest()
        segments[:-1] = kept
