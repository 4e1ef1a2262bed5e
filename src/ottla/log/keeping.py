"""A log as its keepers see it: what is synced, what is dropped, what is replaced, and how it is closed.

Nothing here is on the way of a batch. What may take long is for threads and says so; the rest is a few renames.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ottla.log import gaps, names
from ottla.log.disk import Disk
from ottla.log.failures import is_out_of_space, out_of_space, storage_errors, unreadable
from ottla.log.handles import OpenFiles
from ottla.log.producer_state import ProducerStates
from ottla.log.reading import ReadableLog
from ottla.log.recovery import LoadedLog
from ottla.log.segment import ASK_BEFORE_APPEND, Segment
from ottla.log.snapshot_files import SnapshotFiles
from ottla.log.syncing import DirectoryNames, sync_segments
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition


class KeptLog(ReadableLog):
    """The keeping side of a partition's log."""

    __slots__ = (
        "_config",
        "_disk",
        "_files",
        "_flushed_ms",
        "_names",
        "_segment_bytes",
        "_snapshots",
        "_stamps",
        "flush_messages",
        "producers",
        "recovery_point",
        "truncations",
    )

    def __init__(
        self, tp: TopicPartition, config: TopicConfig, disk: Disk, files: OpenFiles, loaded: LoadedLog, now_ms: int
    ) -> None:
        super().__init__(
            tp,
            loaded.directory,
            loaded.segments,
            loaded.epochs,
            log_start_offset=loaded.log_start_offset,
            log_end_offset=loaded.log_end_offset,
        )
        self.recovery_point = loaded.recovery_point
        """Everything below it survives a crash."""
        self.truncations = 0
        """How often something was cut off at the end, or everything."""
        self.producers: ProducerStates = loaded.producers
        self._snapshots: SnapshotFiles = loaded.snapshots
        self._names = DirectoryNames(disk, loaded.directory, is_new=loaded.is_new, synced=loaded.names_synced)
        self._disk = disk
        self._files = files
        self._flushed_ms = now_ms
        self.config = config

    @property
    def config(self) -> TopicConfig:
        return self._config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        """Takes effect with the next append."""
        self._config = config
        self._segment_bytes = config.segment_bytes
        self._stamps = config.timestamp_type_log_append
        self.flush_messages = config.flush_messages
        self.active.set_index_config(config.index_interval_bytes, config.segment_index_bytes)
        self.active.roll_timestamp = ASK_BEFORE_APPEND

    # -- making it last

    def flush_due(self) -> bool:
        """Whether `flush.messages` asks for a sync now."""
        return self.log_end_offset - self.recovery_point >= self.flush_messages

    def flush_ms_due(self, now_ms: int) -> bool:
        """Whether `flush.ms` asks for a sync now."""
        return self.log_end_offset > self.recovery_point and now_ms - self._flushed_ms >= self._config.flush_ms

    def flush_target(self, *, sealed_only: bool = False) -> int:
        """What to hand to `sync_until`, and then to `mark_flushed`: all there is, or all that will not change."""
        return self.active.base_offset if sealed_only else self.log_end_offset

    def sync_until(self, offset: int) -> None:
        """Return when everything below `offset` would survive a crash. Blocks; any thread.

        StorageError is final: what could not be written may be gone, and another sync would not say so. After an
        ApiError nothing has changed: a file could not be opened, or there is no room for the leader epochs.
        """
        segments = self.segments
        try:
            sync_segments(segments, offset, self._snapshots, lambda segment: segment in self.segments)
            self._names.sync()
            if not self.epochs.is_saved:
                self._store(self.epochs.save)
        except OSError as error:
            # Of a partition that was deleted meanwhile nobody needs anything on the medium.
            if not self._is_gone(error):
                raise unreadable(self.directory, error) from error

    def expect_gaps(self, until: int, truncations: int) -> None:
        """Compaction may leave gaps below `until`, where everything is synced. Blocks; any thread.

        `truncations` is what it was before that sync: after a cut nothing is known to be synced. Errors as those of
        `sync_until`.
        """

        def expect() -> None:
            if truncations == self.truncations:
                gaps.expect_until(self._disk, self.directory, until)

        try:
            self._store(expect)
        except OSError as error:
            if not self._is_gone(error):
                raise unreadable(self.directory, error) from error

    def _store(self, write: Callable[[], None]) -> None:
        """Write a small file, unless the log is closed: another one may have the name of its directory by now.

        One thread at a time: two at once could leave the older one of two files behind.
        """
        with self._disk.exclusively(self.directory):
            if self._closed:
                return
            try:
                write()
            except OSError as error:
                if not is_out_of_space(error):
                    raise
                raise out_of_space(self.directory, error) from error

    @property
    def is_closed(self) -> bool:
        """Stopped, or deleted: its directory may have another name, and another log this one."""
        return self._closed

    def _is_gone(self, error: OSError) -> bool:
        """Whether a file was not found because the partition was deleted meanwhile."""
        return self._closed and isinstance(error, FileNotFoundError)

    def mark_flushed(self, offset: int, now_ms: int | None = None, *, truncations: int | None = None) -> None:
        """Note on the loop that `sync_until(offset)` has returned.

        `truncations` is what it was before the sync, where there may have been one meanwhile: what was synced then need
        not be what is there now.
        """
        if truncations is not None and truncations != self.truncations:
            return
        self.recovery_point = max(self.recovery_point, min(offset, self.log_end_offset))
        if now_ms is not None:
            self._flushed_ms = now_ms

    def snapshot_producers(self) -> None:
        """Write what is known of the producers at the end of the log, so that the next start need not replay it."""
        if self._snapshots.latest != self.log_end_offset and self.log_end_offset > self.log_start_offset:
            with storage_errors(self.directory):
                self._snapshots.write(self.log_end_offset, self.producers.to_snapshot())
                self._names.changed()

    # -- letting go

    def drop_segments(self, segments: Sequence[Segment]) -> list[Segment]:
        """Take the oldest segments out of the log and mark their files. `delete_files` removes those that come back."""
        dropped = [segment for segment in self.segments[: len(segments)] if segment in segments]
        if dropped != list(segments) or self.active in dropped:
            raise ValueError(f"{self.tp}: only the oldest segments go, and never the active one")
        self._set_segments(self.segments[len(dropped) :])
        self._set_start(self.segments[0].base_offset)
        self._mark_deleted(dropped)
        return dropped

    def begin_at(self, offset: int) -> None:
        """Let the log begin at `offset`; what is before goes with retention. The caller stores the start in time."""
        if not 0 <= offset <= self.log_end_offset:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.tp} ends at {self.log_end_offset}, before {offset}")
        self._set_start(offset)

    def delete_records_before(self, offset: int) -> list[Segment]:
        """Let the log begin at `offset`; returns the segments that fell out, for `delete_files`.

        The caller has stored the new start: after a crash some of the segments may be back, and others not; a hole
        between them is no loss then.
        """
        self.begin_at(offset)
        ends = [segment.base_offset for segment in self.segments[1:]]
        return self.drop_segments(self.segments[: sum(end <= self.log_start_offset for end in ends)])

    def delete_files(self, segments: Sequence[Segment]) -> None:
        """Remove the files of dropped segments. Blocks; any thread."""
        with storage_errors(self.directory):
            if not self._disk.is_dir(self.directory):
                return
            # First of all what took their place must be there after a crash, and they must not.
            self._disk.sync_dir(self.directory)
            for segment in segments:
                segment.remove_files()

    def replace_segments(self, old: Sequence[Segment], new: Sequence[str]) -> list[Segment]:
        """Put new segments into the place of old ones; `new` are `.log.swap` paths that `replacement.commit` returned.

        Returns the old segments for `delete_files`; none if one of them is gone already, then the new ones are removed,
        or if the partition was deleted meanwhile.
        """
        with storage_errors(self.directory):
            parsed = [names.parse_segment_name(path.rpartition("/")[2]) for path in new]
            try:
                segments = [self._swapped(name[0]) for name in parsed if name is not None]
            except FileNotFoundError as error:
                if self._is_gone(error):
                    return []
                raise
            if any(segment not in self.segments for segment in old) or self.active in old:
                for segment in segments:
                    segment.remove_files()
                return []
            kept = [segment for segment in self.segments if segment not in old]
            self._set_segments(sorted([*segments, *kept], key=lambda segment: segment.base_offset))
            self._mark_deleted(old, kept={segment.base_offset for segment in segments})
            for segment in segments:
                segment.rename("")
        return list(old)

    def _swapped(self, base_offset: int) -> Segment:
        size = self._disk.size(names.segment_path(self.directory, base_offset, names.LOG, names.SWAP))
        segment = Segment(self.directory, base_offset, self._files, size=size, suffix=names.SWAP)
        segment.set_index_config(self._config.index_interval_bytes, self._config.segment_index_bytes)
        segment.sealed = segment.synced = True
        if self._disk.exists(segment.path_of(names.TRANSACTION_INDEX)):
            segment.load_transactions()
        # Before any thread sees it: the files are renamed under the very handles that everybody uses.
        segment.load_indexes()
        return segment

    def _mark_deleted(self, segments: Sequence[Segment], kept: Collection[int] = ()) -> None:
        """Rename segments away; producer snapshots go with them unless another segment begins there.

        They are out of `segments` by now: a thread that misses a file looks there to learn whether that is a fault.
        """
        with storage_errors(self.directory):
            for segment in segments:
                segment.rename(names.DELETED)
            self._snapshots.remove([segment.base_offset for segment in segments if segment.base_offset not in kept])

    def _set_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_from_start(offset)
            if self.active.tail is not None:
                self.active.tail.begin_at(offset)

    def _set_segments(self, segments: list[Segment]) -> None:
        self.segments = segments
        self.active = segments[-1]
        self._names.changed()

    # -- the end

    def close(self, *, sync: bool = True) -> None:
        """Write everything that is only in memory, sync it, and let go of the files. Blocks; not to be used afterwards.

        Once all logs of a directory are closed like that, the directory may be marked as cleanly stopped.
        """
        if self._closed:
            return
        had_room = self.active.has_room
        with storage_errors(self.directory):
            self.active.seal()
            if sync and had_room:
                self.active.log.get().sync()  # How long the file is must be as safe as what is in it.
        self.snapshot_producers()
        if sync:
            self._sync_all()
        self._let_go()

    def _sync_all(self) -> None:
        is_synced = (
            self.recovery_point == self.log_end_offset
            and self._names.are_synced
            and self.epochs.is_saved
            and all(segment.synced for segment in self.segments[:-1])
        )
        if not is_synced:
            with storage_errors(self.directory):
                self.active.sync()
                self._snapshots.sync(self.log_end_offset)
            self.sync_until(self.log_end_offset)
            self.mark_flushed(self.log_end_offset)

    def rename_for_deletion(self, target: str) -> None:
        """Move the whole directory away; the caller removes it later. Slices that are under way stay good."""
        # Not while a thread writes a small file: that would be found in the directory of a log with the same name.
        with storage_errors(self.directory), self._disk.exclusively(self.directory):
            self._let_go()
            self._disk.rename(self.directory, target)

    def _let_go(self) -> None:
        self._closed = True
        # Every later append takes the way on which `_check_open` stands.
        self.active.roll_timestamp = ASK_BEFORE_APPEND - 1
        self._segment_bytes = -1
        for segment in self.segments:
            segment.forget()
        self.active.tail = None
