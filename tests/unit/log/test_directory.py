"""A log directory belongs to one node, remembers what is safe, and fails alone."""

from __future__ import annotations

import errno
from pathlib import Path
from uuid import UUID

import pytest

from ottla.log.directory import CLEAN_SHUTDOWN, LogDirectory, read_identity
from ottla.log.disk import Disk, RealDisk
from ottla.log.handles import OpenFiles
from ottla.log.partition_log import PartitionLog
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode, StorageError
from ottla.model.ids import TopicPartition
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, append, batch_of

ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 7)


def take(disk: Disk, path: str, *, cluster_id: str = "c1", node_id: int = 1) -> LogDirectory:
    return LogDirectory.open(path, disk, cluster_id=cluster_id, node_id=node_id, new_directory_id=ID)


def memory_directory() -> tuple[CrashDisk, LogDirectory]:
    disk = CrashDisk()
    return disk, take(disk, "/data")


def open_log(directory: LogDirectory, disk: Disk, tp: TopicPartition = ORDERS) -> PartitionLog:
    return directory.open_log(tp, TopicConfig(), OpenFiles(disk, 64), now_ms=NOW_MS, topic_id=UUID(int=5))


def test_an_empty_directory_is_marked_as_kafka_does(tmp_path: Path) -> None:
    directory = take(RealDisk(), str(tmp_path / "data") + "/")
    assert (tmp_path / "data" / "meta.properties").read_text() == (
        "version=1\ncluster.id=c1\nnode.id=1\ndirectory.id=ASNFZ4mrze8BI0VniavN7w\n"
    )
    assert directory.directory_id == ID
    directory.close()
    assert read_identity(RealDisk(), str(tmp_path / "data")) == ("c1", 1, ID)
    assert read_identity(RealDisk(), str(tmp_path)) is None


def test_a_directory_of_another_cluster_or_node_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    take(RealDisk(), path).close()
    with pytest.raises(StorageError, match="belongs to node 1 of cluster c1, not to node 1 of cluster c2"):
        take(RealDisk(), path, cluster_id="c2")
    with pytest.raises(StorageError, match="not to node 2"):
        take(RealDisk(), path, node_id=2)
    # A refusal lets go of the lock.
    take(RealDisk(), path).close()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    directory = take(RealDisk(), str(tmp_path))
    with pytest.raises(StorageError, match="already in use by another broker"):
        take(RealDisk(), str(tmp_path))
    directory.close()
    take(RealDisk(), str(tmp_path)).close()


@pytest.mark.parametrize(
    "content", [b"version=2\ncluster.id=c1\nnode.id=1\ndirectory.id=x\n", b"version=1\ncluster.id=c1\n", b"version=1\n"]
)
def test_an_identity_that_cannot_be_read_is_not_overwritten(content: bytes) -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    disk.open("/data/meta.properties", create=True).pwrite(content, 0)
    with pytest.raises(StorageError, match=r"meta\.properties"):
        take(disk, "/data")
    assert disk.read("/data/meta.properties") == content


def test_a_clean_stop_is_trusted_once() -> None:
    disk, directory = memory_directory()
    log = open_log(directory, disk)
    append(log, batch_of(3))
    log.close()
    directory.checkpoint(recovery_points={ORDERS: 3})
    assert directory.mark_clean(broker_epoch=12)
    assert disk.read(f"/data/{CLEAN_SHUTDOWN}") == b'{"version":0,"brokerEpoch":12}'
    directory.close()
    again = take(disk, "/data")
    assert again.was_clean
    assert open_log(again, disk).log_end_offset == 3
    # The broker dies without a word: the mark was for one start only.
    assert not take(disk.crash_with_everything(), "/data").was_clean


def test_a_directory_is_not_marked_clean_while_a_log_was_never_looked_at() -> None:
    disk, directory = memory_directory()
    for tp in (ORDERS, PAYMENTS):
        append(open_log(directory, disk, tp), batch_of(3))
    after = disk.crash_with_everything()
    directory = take(after, "/data")
    assert directory.unrecovered == [ORDERS, PAYMENTS]
    open_log(directory, after).close()
    assert directory.unrecovered == [PAYMENTS]
    assert not directory.mark_clean()
    assert not after.exists(f"/data/{CLEAN_SHUTDOWN}")
    open_log(directory, after, PAYMENTS).close()
    assert directory.mark_clean()


def test_checkpoints_keep_what_is_not_mentioned_and_survive() -> None:
    disk, directory = memory_directory()
    for tp in (ORDERS, PAYMENTS):
        open_log(directory, disk, tp)
    directory.checkpoint(recovery_points={ORDERS: 5, PAYMENTS: 6}, log_start_offsets={ORDERS: 2})
    directory.checkpoint(recovery_points={ORDERS: 9}, high_watermarks={PAYMENTS: 6})
    assert disk.read("/data/recovery-point-offset-checkpoint") == b"0\n2\norders 0 9\npayments 7 6\n"
    again = take(disk.crash_with_everything(), "/data")
    assert again.recovery_points == {ORDERS: 9, PAYMENTS: 6}
    assert (again.log_start_offsets, again.high_watermarks) == ({ORDERS: 2}, {PAYMENTS: 6})


def test_a_checkpoint_that_says_nothing_new_is_not_written() -> None:
    disk, directory = memory_directory()
    open_log(directory, disk)
    directory.checkpoint(recovery_points={ORDERS: 5})
    disk.fail_syncs = lambda: OSError("nothing to sync")
    directory.checkpoint(recovery_points={ORDERS: 5}, log_start_offsets={}, high_watermarks=None)


def test_a_damaged_checkpoint_means_that_nothing_is_known_to_be_safe() -> None:
    disk, directory = memory_directory()
    append(open_log(directory, disk), batch_of(3))
    directory.checkpoint(recovery_points={ORDERS: 3})
    directory.mark_clean()
    disk.open("/data/recovery-point-offset-checkpoint").truncate(9)
    again = take(disk, "/data")
    assert (again.was_clean, again.recovery_points, again.unrecovered) == (False, {}, [ORDERS])
    assert open_log(again, disk).log_end_offset == 3


def test_partitions_are_found_and_what_waits_for_deletion_is_not_one() -> None:
    disk, directory = memory_directory()
    log = open_log(directory, disk)
    open_log(directory, disk, PAYMENTS)
    unknown = TopicPartition("unknown", 0)
    disk.makedirs("/data/unknown-0")
    assert [found[::2] for found in directory.partitions()] == [
        (ORDERS, UUID(int=5)),
        (PAYMENTS, UUID(int=5)),
        (unknown, None),
    ]
    path = directory.begin_deletion(ORDERS, ID, log)
    assert path == f"/data/orders-0.{ID.hex}-delete"
    other = directory.begin_deletion(unknown, ID)
    assert [found.tp for found in directory.partitions()] == [PAYMENTS]
    assert directory.pending_deletions() == [path, other]


def test_a_topic_that_comes_back_does_not_meet_its_former_life() -> None:
    """Deleted, made again under the same name, and then a crash: the old recovery point must not call it corrupt."""
    disk, directory = memory_directory()
    log = open_log(directory, disk)
    append(log, batch_of(50))
    log.sync_until(50)
    directory.checkpoint(recovery_points={ORDERS: 50}, log_start_offsets={ORDERS: 40})
    disk.remove_tree(directory.begin_deletion(ORDERS, ID, log))
    append(open_log(directory, disk), batch_of(2))
    after = disk.crash_with_everything()
    reopened = open_log(take(after, "/data"), after)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (0, 2)


def test_a_topic_that_comes_back_is_dirty_from_its_start() -> None:
    """Else the values of a key stay that was deleted below the old mark, and its tombstone goes."""
    disk, directory = memory_directory()
    log = open_log(directory, disk)
    append(log, batch_of(50))
    directory.cleaner.advance(ORDERS, 40)
    directory.checkpoint()
    disk.remove_tree(directory.begin_deletion(ORDERS, ID, log))
    append(open_log(directory, disk), batch_of(60))
    assert directory.cleaner.get(ORDERS) is None
    assert take(disk.crash_with_everything(), "/data").cleaner.get(ORDERS) is None


def test_what_a_crash_took_is_dirty_when_it_is_written_again() -> None:
    disk, directory = memory_directory()
    log = open_log(directory, disk)
    append(log, batch_of(30))
    log.sync_until(30)
    append(log, batch_of(20))
    directory.cleaner.advance(ORDERS, 50)
    directory.checkpoint(recovery_points={ORDERS: 30})
    after = disk.crash_with_everything()
    log_path = f"/data/{ORDERS}/{0:020d}.log"
    after.open(log_path).truncate(after.size(log_path) - 1)
    directory = take(after, "/data")
    append(open_log(directory, after), batch_of(90))
    assert directory.cleaner.get(ORDERS) == 30


def test_offsets_of_partitions_that_are_not_here_are_forgotten() -> None:
    disk, directory = memory_directory()
    open_log(directory, disk)
    directory.checkpoint(recovery_points={ORDERS: 1, TopicPartition("gone", 0): 99})
    assert take(disk, "/data").recovery_points == {ORDERS: 1}


def test_a_failed_directory_fails_alone() -> None:
    disk, directory = memory_directory()
    other = take(disk, "/other")
    disk.fail_syncs = lambda: OSError(errno.EIO, "Input/output error")
    with pytest.raises(StorageError, match="Input/output error") as failure:
        directory.checkpoint(recovery_points={ORDERS: 5})
    assert failure.value.directory == "/data"
    disk.fail_syncs = lambda: None
    assert (directory.online, other.online) == (False, True)
    for attempt in (lambda: open_log(directory, disk), lambda: directory.checkpoint(recovery_points={ORDERS: 6})):
        with pytest.raises(StorageError, match=r"offline: .*Input/output error"):
            attempt()
    assert not directory.mark_clean()
    directory.fail("later")
    assert "Input/output" in (directory.failure or "")
    assert append(open_log(other, disk), batch_of(1)).base_offset == 0


def test_a_full_directory_is_not_a_failed_one() -> None:
    disk, directory = memory_directory()
    log = open_log(directory, disk)
    disk.fail_writes = lambda size: OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ApiError, match="no space left") as refused:
        directory.checkpoint(recovery_points={ORDERS: 5})
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert directory.recovery_points == {}
    assert not directory.mark_clean()
    # Deletion makes room, so it works.
    disk.remove_tree(directory.begin_deletion(ORDERS, ID, log))
    assert directory.online
    disk.fail_writes = lambda size: None
    directory.checkpoint(recovery_points={PAYMENTS: 5})


def test_a_directory_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        take(RealDisk(), str(tmp_path / "file"))
    directory = take(RealDisk(), str(tmp_path / "data"))
    assert 0 < directory.free_bytes() <= directory.total_bytes()
