"""Where the dirty part of a log starts is remembered in Kafka's format, and losing that loses no record."""

from __future__ import annotations

from ottla.log.cleaner_checkpoint import CleanerCheckpoint
from ottla.model.ids import TopicPartition
from tests.unit.log.crash_disk import CrashDisk

A, B = TopicPartition("a", 0), TopicPartition("b-c", 7)


def test_offsets_survive_in_kafkas_format() -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    checkpoint = CleanerCheckpoint(disk, "/data")
    assert checkpoint.get(A) is None
    checkpoint.advance(A, 5)
    checkpoint.advance(B, 2**40)
    checkpoint.write()
    assert disk.read("/data/cleaner-offset-checkpoint") == b"0\n2\na 0 5\nb-c 7 1099511627776\n"
    again = CleanerCheckpoint(disk, "/data")
    assert (again.get(A), again.get(B)) == (5, 2**40)


def test_a_log_that_was_cut_is_dirty_from_the_cut_on() -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    checkpoint = CleanerCheckpoint(disk, "/data")
    checkpoint.advance(A, 5)
    checkpoint.truncate(A, 7)
    assert checkpoint.get(A) == 5
    checkpoint.truncate(A, 3)
    assert checkpoint.get(A) == 3
    checkpoint.truncate(B, 3)
    assert checkpoint.get(B) is None


def test_partitions_that_are_gone_are_forgotten() -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    checkpoint = CleanerCheckpoint(disk, "/data")
    checkpoint.advance(A, 5)
    checkpoint.advance(B, 5)
    checkpoint.retain({B})
    assert checkpoint.get(A) is None
    assert checkpoint.get(B) == 5


def test_a_file_that_cannot_be_read_makes_everything_dirty_and_stops_nobody() -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    disk.write_atomically("/data/cleaner-offset-checkpoint", b"7\nnonsense")
    assert CleanerCheckpoint(disk, "/data").get(A) is None
