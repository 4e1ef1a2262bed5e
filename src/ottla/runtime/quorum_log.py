"""The metadata log on disk, as the quorum's state machine sees it (`LogView`) and as its driver works on it.

What an editor must keep true. `quorum-state` says below which offset everything was synced; a log that ends before that
does not start. So before anything is cut off the lower offset is on disk (`lower_synced_offset`). A sync that was under
way while the log was cut counts for nothing. That file is written for several reasons at once (a vote, a snapshot, a
cut): one write at a time, each of what holds when it begins, so that no older vote is ever put in place of a newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ottla.core.quorum.effects import ElectionState, OffsetAndEpoch
from ottla.core.quorum.voters import ReplicaKey
from ottla.log.partition_log import Appended, PartitionLog
from ottla.log.segment import Segment
from ottla.model.ids import ZERO_UUID
from ottla.runtime.metadata_log import MetadataLog
from ottla.runtime.metadata_snapshot import SnapshotId, remove_older_snapshots
from ottla.runtime.quorum_state import FILE_NAME, QuorumState, write_quorum_state
from ottla.runtime.world import World
from ottla.wire.batch import read_header


class QuorumLog:
    """The log, its snapshots, and the file with the epoch and the vote."""

    __slots__ = ("_synced_offset_max", "_world", "_writing", "directory", "log", "snapshots", "state", "voter_ids")

    def __init__(self, world: World, directory: str, loaded: MetadataLog) -> None:
        self._world = world
        self.directory = directory
        self.log: PartitionLog = loaded.log
        self.snapshots: list[SnapshotId] = loaded.snapshots
        """The newest first. The log starts at the end of the last one."""
        self.voter_ids: Sequence[int] = ()
        stored = loaded.state
        voted = ReplicaKey(stored.voted_id, stored.voted_directory_id) if stored.voted_id >= 0 else None
        is_current = loaded.epoch == stored.leader_epoch
        self.state = ElectionState(loaded.epoch, voted, stored.leader_id) if is_current else ElectionState(loaded.epoch)
        """The epoch, the vote and who was elected, as they are on disk, or on their way there."""
        self._synced_offset_max: int | None = None
        self._writing = asyncio.Lock()

    # -- LogView

    @property
    def start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def synced_offset(self) -> int:
        return self.log.recovery_point

    @property
    def last_epoch(self) -> int:
        if self.log.epochs.latest >= 0:
            return self.log.epochs.latest
        return self.snapshots[0].epoch if self.snapshots else 0

    @property
    def start_snapshot(self) -> OffsetAndEpoch | None:
        return OffsetAndEpoch(*self.snapshots[-1]) if self.snapshots and self.log.log_start_offset else None

    @property
    def latest_snapshot(self) -> OffsetAndEpoch | None:
        return OffsetAndEpoch(*self.snapshots[0]) if self.snapshots else None

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        if epoch >= self.last_epoch:
            return OffsetAndEpoch(self.end_offset, self.last_epoch)
        entries = self.log.epochs.entries
        found = [entry for entry in entries if entry.epoch <= epoch]
        if not found:
            start = self.start_snapshot
            return OffsetAndEpoch(self.start_offset, start.epoch if start is not None else 0)
        return OffsetAndEpoch(entries[len(found)].start_offset, found[-1].epoch)

    # -- writing

    def append(self, batch: bytearray, epoch: int, now_ms: int) -> Appended:
        """As a leader. ApiError if there is no space, and the log is as it was; StorageError is final."""
        view = memoryview(batch)
        return self.log.append(view, read_header(view), epoch, now_ms)

    async def bring_to_disk(self) -> None:
        """Return when what is there now is on disk."""
        target, truncations = self.log.log_end_offset, self.log.truncations
        await self._world.offload.run(self.log.sync_until, target)
        self.log.mark_flushed(target, truncations=truncations)

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Batches from `offset` on, one at least if there is one."""
        found = self.log.read(offset, bytes_max, self.log.log_end_offset, at_least_one=True)
        return b"" if found is None else found.file.pread(found.length, found.position)

    # -- the epoch and the vote

    async def store(self, state: ElectionState) -> None:
        """Return when the state is on disk."""
        self.state = state
        await self.store_again()

    async def store_again(self) -> None:
        """With what is synced by now."""
        path = f"{self.directory}/{FILE_NAME}"
        async with self._writing:
            await self._world.offload.run(write_quorum_state, self._world.disk, path, self._to_store())

    @property
    def is_storing(self) -> bool:
        """Whether a thread writes the file now. Whoever waits for that must not be cancelled: another would begin."""
        return self._writing.locked()

    def _to_store(self) -> QuorumState:
        synced_offset = self.log.recovery_point
        if self._synced_offset_max is not None:
            synced_offset = min(synced_offset, self._synced_offset_max)
        voted = self.state.voted
        return QuorumState(
            leader_id=self.state.leader_id,
            leader_epoch=self.state.epoch,
            voted_id=-1 if voted is None else voted.id,
            voted_directory_id=ZERO_UUID if voted is None else voted.directory_id,
            voters=tuple(self.voter_ids),
            synced_offset=synced_offset,
        )

    # -- cutting off

    async def lower_synced_offset(self, offset: int) -> None:
        """Return when a log that ends at `offset` would be taken as whole. `cut` or `keep` follows."""
        self._synced_offset_max = offset
        await self.store_again()

    def keep(self) -> None:
        """Nothing is cut off after all."""
        self._synced_offset_max = None

    def cut(self, offset: int, now_ms: int) -> list[Segment]:
        """Returns the segments that fell out, for `delete_files`."""
        self._synced_offset_max = None
        return self.log.truncate_to(offset, now_ms)

    def restart(self, snapshot: SnapshotId, now_ms: int) -> list[Segment]:
        """Begin anew behind a snapshot that is on disk; returns the segments that fell out."""
        self._synced_offset_max = None
        self.snapshots = [snapshot]
        return self.log.truncate_fully_and_start_at(snapshot.end_offset, now_ms)

    async def delete_files(self, segments: list[Segment]) -> None:
        if segments:
            await self._world.offload.run(self.log.delete_files, segments)

    async def add_snapshot(self, snapshot: SnapshotId, kept: int) -> None:
        """Let go of what a new snapshot of this log has made superfluous; `kept` snapshots stay."""
        self.snapshots = [snapshot, *self.snapshots][:kept]
        await self.store_again()
        if len(self.snapshots) < kept:
            return
        oldest = self.snapshots[-1]
        removed = self.log.delete_records_before(max(oldest.end_offset, self.log.log_start_offset))
        await self.delete_files(removed)
        await self._world.offload.run(remove_older_snapshots, self._world.disk, self.directory, oldest)
