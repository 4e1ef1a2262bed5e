"""Replicas find where their logs part by the epochs of their leaders."""

from __future__ import annotations

import pytest

from ottla.log.epochs import EpochStart, LeaderEpochs
from tests.unit.log.crash_disk import CrashDisk

PATH = "/d/leader-epoch-checkpoint"


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    disk = CrashDisk()
    disk.makedirs("/d")
    epochs = LeaderEpochs(disk, PATH)
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


def starts(epochs: LeaderEpochs) -> list[tuple[int, int]]:
    return [tuple(entry) for entry in epochs.entries]  # type: ignore[misc]


def test_the_file_is_kafkas_and_survives_a_restart() -> None:
    disk = CrashDisk()
    disk.makedirs("/d")
    epochs = LeaderEpochs(disk, PATH)
    epochs.assign(0, 0)
    epochs.assign(3, 120)
    assert not epochs.is_saved
    epochs.save()
    assert disk.read(PATH) == b"0\n2\n0 0\n3 120\n"
    again = LeaderEpochs(disk, PATH)
    again.load()
    assert again.entries == (EpochStart(0, 0), EpochStart(3, 120))
    assert again.latest == 3
    assert again.is_saved


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(0, (-1, -1)), (1, (1, 10)), (2, (1, 10)), (3, (3, 50)), (4, (4, 77)), (5, (-1, -1)), (-1, (-1, -1))],
)
def test_the_end_of_an_epoch_is_where_the_next_one_begins(epoch: int, expected: tuple[int, int]) -> None:
    epochs = epochs_of((1, 0), (3, 10), (4, 50))
    if epoch == 0:
        # Older than anything known: the first known one begins where it ended at the latest.
        expected = (0, 0)
    assert epochs.end_offset_for(epoch, 77) == expected


def test_the_first_batch_of_an_epoch_counts() -> None:
    epochs = epochs_of((2, 10), (2, 15))
    assert starts(epochs) == [(2, 10)]
    epochs.assign(2, 5)
    assert starts(epochs) == [(2, 5)]


def test_an_epoch_without_batches_makes_room_for_the_next() -> None:
    assert starts(epochs_of((1, 0), (2, 10), (3, 10))) == [(1, 0), (3, 10)]


def test_an_epoch_that_contradicts_later_ones_wins() -> None:
    assert starts(epochs_of((1, 0), (4, 10), (6, 20), (2, 15))) == [(1, 0), (2, 15)]


def test_truncation_forgets_epochs_that_are_cut_off() -> None:
    epochs = epochs_of((1, 0), (2, 10), (3, 20))
    epochs.truncate_from_end(20)
    assert starts(epochs) == [(1, 0), (2, 10)]
    assert epochs.latest == 2
    epochs.truncate_from_end(15)
    assert starts(epochs) == [(1, 0), (2, 10)]


def test_deleted_records_take_their_epochs_with_them() -> None:
    epochs = epochs_of((1, 0), (2, 10), (3, 20))
    epochs.truncate_from_start(15)
    assert starts(epochs) == [(2, 15), (3, 20)]
    epochs.truncate_from_start(20)
    assert starts(epochs) == [(3, 20)]
    epochs.truncate_from_start(99)
    assert starts(epochs) == [(3, 99)]


def test_the_leader_of_an_offset_is_known() -> None:
    epochs = epochs_of((1, 5), (2, 10))
    assert [epochs.epoch_of(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 2, 2]


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"0\n5\n0 0\n", b"0\n1\nx y\n", b"0\n2\n3 5\n2 9\n", b"1\n0\n"])
def test_an_unreadable_file_counts_as_none(content: bytes) -> None:
    disk = CrashDisk()
    disk.makedirs("/d")
    disk.open(PATH, create=True).pwrite(content, 0)
    epochs = LeaderEpochs(disk, PATH)
    epochs.load()
    assert epochs.entries == ()
    assert epochs.latest == -1
