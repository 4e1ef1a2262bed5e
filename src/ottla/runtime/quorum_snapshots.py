"""Snapshots of the metadata: taken here when the log has grown, read by others, fetched when this node is far behind.

A snapshot that comes from the leader is written under another name, synced, read back and only then renamed: a file
with the right name is whole. What it says is committed, so it may stay whatever becomes of the log; the log that it
replaces goes afterwards, and only while this node still follows that leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from ottla.core.controller.image import MetadataImage
from ottla.core.quorum.effects import FetchSnapshot
from ottla.core.quorum.voters import VoterSet
from ottla.model.errors import CorruptLogError, ErrorCode, OttlaError
from ottla.runtime.metadata_log import image_of_snapshot
from ottla.runtime.metadata_snapshot import PART_SUFFIX, SnapshotId, read_snapshot_file, write_snapshot
from ottla.runtime.network import PeerError

if TYPE_CHECKING:
    from ottla.log.disk import Disk
    from ottla.runtime.quorum_driver import QuorumDriver

log: Final = structlog.get_logger()

KEPT: Final = 2
"""A follower that is not far behind finds the log before the newest snapshot still there."""
FETCHED_SUFFIX: Final = ".fetched" + PART_SUFFIX
SNAPSHOT_BYTES_MAX: Final = 8 << 30


class QuorumSnapshots:
    """The snapshots of one node."""

    __slots__ = ("_busy", "_node", "_taken_ms")

    def __init__(self, node: QuorumDriver, now_ms: int) -> None:
        self._node = node
        self._taken_ms = now_ms
        self._busy = False

    @property
    def is_busy(self) -> bool:
        return self._busy

    # -- taking

    def take_if_due(self) -> None:
        """Called after each commit."""
        node = self._node
        interval_ms = node.config.metadata_log_max_snapshot_interval_ms
        now_ms = node.world.clock.now_ms()
        large = node.commits.bytes_committed >= node.config.metadata_log_max_record_bytes_between_snapshots
        old = 0 < interval_ms <= now_ms - self._taken_ms
        if (
            not (large or old)
            or self._busy
            or node.commits.is_in_transaction
            or node.image.offset + 1 <= node.log.start_offset
        ):
            return
        voters = node.core.history.at(node.image.offset + 1)
        if voters is None or (node.log.snapshots and node.image.offset + 1 <= node.log.snapshots[0].end_offset):
            return
        node.commits.bytes_committed = 0
        self._taken_ms = now_ms
        try:
            # A segment goes when the snapshot reaches its end, so that one ends here.
            node.log.log.roll(now_ms)
        except OttlaError as error:
            log.error("snapshot of the metadata failed", directory=node.directory, error=str(error))
            return
        self._busy = True
        node.spawn(self._take, node.image, voters, now_ms)

    async def _take(self, image: MetadataImage, voters: VoterSet, now_ms: int) -> None:
        """Write a snapshot, and let go of what it has made superfluous. A failure costs space, nothing else."""
        node = self._node
        try:
            snapshot = await node.world.offload.run(
                write_snapshot, node.world.disk, node.directory, image, now_ms, voters
            )
            if not node.log.snapshots or snapshot > node.log.snapshots[0]:
                kept = 1 if node.is_alone else KEPT
                await node.log.add_snapshot(snapshot, kept)
        except (OSError, OttlaError) as error:
            log.error("snapshot of the metadata failed", directory=node.directory, error=str(error))
        finally:
            self._busy = False

    # -- serving

    async def read_part(self, snapshot: SnapshotId, position: int, bytes_max: int) -> tuple[ErrorCode, int, bytes]:
        """The size of a snapshot and some of its bytes."""
        node = self._node
        if snapshot not in node.log.snapshots:
            return ErrorCode.SNAPSHOT_NOT_FOUND, 0, b""
        path = f"{node.directory}/{snapshot.file_name}"
        try:
            size, data = await node.world.offload.run(_read, node.world.disk, path, position, bytes_max)
        except FileNotFoundError:
            return ErrorCode.SNAPSHOT_NOT_FOUND, 0, b""
        if not 0 <= position < size:
            return ErrorCode.POSITION_OUT_OF_RANGE, size, b""
        return ErrorCode.NONE, size, data

    # -- fetching

    async def fetch(self, effect: FetchSnapshot) -> None:
        """Fetch a snapshot and go on behind it; PeerError or CorruptLogError if that did not work."""
        node = self._node
        snapshot = SnapshotId(*effect.snapshot)
        path = f"{node.directory}/{snapshot.file_name}"
        await self._download(effect, path + FETCHED_SUFFIX)
        image, voters = await node.world.offload.run(self._settle, path, snapshot)
        await node.log.lower_synced_offset(min(snapshot.end_offset, node.log.synced_offset))
        if not node.core.is_following(effect.epoch) or snapshot.end_offset <= node.core.high_watermark:
            node.log.keep()
            raise PeerError(f"{effect.leader.host}:{effect.leader.port}", "it is not followed any more")
        dropped = node.log.restart(snapshot, node.world.clock.now_ms())
        node.core.history.restart(voters)
        node.commits.restart(image)
        await node.log.delete_files(dropped)
        await node.log.bring_to_disk()
        log.info("took over a snapshot of the metadata", end_offset=snapshot.end_offset, epoch=snapshot.epoch)

    async def _download(self, effect: FetchSnapshot, path: str) -> None:
        node, position = self._node, 0
        bytes_max = node.config.controller_quorum_fetch_snapshot_max_bytes
        while True:
            size, data = await node.peers.snapshot_part(effect, position, bytes_max, node.core.key)
            address = f"{effect.leader.host}:{effect.leader.port}"
            if not data or size > SNAPSHOT_BYTES_MAX:
                raise PeerError(address, f"it sent no more of a snapshot of {size} bytes after {position}")
            if not node.core.is_following(effect.epoch):
                raise PeerError(address, "it is not followed any more")
            node.core.snapshot_progress(node.now_ms())
            await node.world.offload.run(_write, node.world.disk, path, position, data)
            position += len(data)
            if position >= size:
                return

    def _settle(self, path: str, snapshot: SnapshotId) -> tuple[MetadataImage, VoterSet | None]:  # runs in a thread
        disk = self._node.world.disk
        fetched = path + FETCHED_SUFFIX
        disk.open(fetched).sync()
        content = image_of_snapshot(snapshot, read_snapshot_file(disk, fetched), self._node.cluster_id)
        if content[1] is None:
            raise CorruptLogError(f"{fetched} names no voters")
        disk.rename(fetched, path)
        disk.sync_dir(self._node.directory)
        return content


def _read(disk: Disk, path: str, position: int, bytes_max: int) -> tuple[int, bytes]:  # runs in a thread
    file = disk.open(path, write=False)
    return file.size(), file.pread(bytes_max, max(position, 0))


def _write(disk: Disk, path: str, position: int, data: bytes) -> None:  # runs in a thread
    if position == 0:
        _remove_unfinished(disk, path)
    disk.open(path, create=True).pwrite(data, position)


def _remove_unfinished(disk: Disk, path: str) -> None:
    """One is fetched at a time: whatever else was begun, in this life or an earlier one, is of no use."""
    directory = path.rpartition("/")[0]
    for name in disk.listdir(directory):
        if name.endswith(FETCHED_SUFFIX):
            disk.remove(f"{directory}/{name}")
