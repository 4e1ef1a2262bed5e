"""After an unclean stop: what is torn goes, what was safe stays, and what cannot be right is not hidden."""

from __future__ import annotations

import pytest

from ottla.log.partition_log import PartitionLog
from ottla.log.segment import Segment
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import CorruptLogError
from ottla.wire.batch import read_header
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, append, batch_of, check_indexes, open_log, read_all

DIRECTORY = "/data/orders-3"
CONFIG = TopicConfig(index_interval_bytes=200)


def written(segments: int = 1, batches: int = 10) -> tuple[CrashDisk, PartitionLog]:
    """Batches of two records each, ten to a segment unless told otherwise."""
    disk = CrashDisk()
    disk.makedirs("/data")
    log = open_log(disk, DIRECTORY, config=CONFIG)
    for segment in range(segments):
        if segment:
            log.roll(NOW_MS)
        for number in range(batches):
            sequence = 2 * (segment * batches + number)
            batch = batch_of(2, timestamp=NOW_MS + sequence, producer=ProducerFields(1, 0, sequence))
            append(log, batch, leader_epoch=segment)
    log.active.seal()
    return disk, log


def reopen(disk: CrashDisk, *, recovery_point: int = 0, clean: bool = False, log_start_offset: int = 0) -> PartitionLog:
    return open_log(
        disk.crash_with_everything(),
        DIRECTORY,
        config=CONFIG,
        clean=clean,
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
    )


def log_file(base_offset: int) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.log"


def test_every_cut_of_the_last_batches_leaves_the_whole_ones_before() -> None:
    disk, log = written()
    batches = read_all(log)
    size = log.active.size
    ends = [sum(map(len, batches[: number + 1])) for number in range(len(batches))]
    for cut in range(ends[6], size + 1):
        copy = disk.crash_with_everything()
        copy.open(log_file(0)).truncate(cut)
        recovered = reopen(copy)
        kept = sum(end <= cut for end in ends)
        assert recovered.log_end_offset == 2 * kept
        assert recovered.active.log.get().size() == (ends[kept - 1] if kept else 0)
        check_indexes(recovered)
        assert recovered.producers.active_producers()[0].next_sequence == 2 * kept


def test_a_tail_of_zeros_is_a_torn_write() -> None:
    disk, log = written()
    disk.open(log_file(0)).pwrite(bytes(5000), log.active.size)
    recovered = reopen(disk, recovery_point=20)
    assert recovered.log_end_offset == 20
    assert recovered.active.log.get().size() == log.active.size


@pytest.mark.parametrize("damage", ["crc", "length", "magic", "offset", "negative delta"])
def test_the_log_ends_at_the_first_bad_batch(damage: str) -> None:
    disk, log = written()
    batch = read_all(log)[6]
    position = log.active.tail.positions[6] if log.active.tail else 0
    bad = bytearray(batch)
    if damage == "crc":
        bad[-1] ^= 1
    elif damage == "length":
        bad[8:12] = (1 << 30).to_bytes(4, "big")
    elif damage == "magic":
        bad[16] = 1
    elif damage == "offset":
        bad[0:8] = (3).to_bytes(8, "big")
    else:
        bad[23:27] = b"\xff\xff\xff\xff"
    disk.open(log_file(0)).pwrite(bytes(bad), position)
    recovered = reopen(disk, recovery_point=12)
    assert recovered.log_end_offset == 12
    assert len(read_all(recovered)) == 6
    check_indexes(recovered)
    with pytest.raises(CorruptLogError, match="everything below offset 13 was safe"):
        reopen(disk, recovery_point=13)


def test_a_log_that_lost_what_was_safe_is_not_hidden() -> None:
    disk, log = written()
    disk.open(log_file(0)).truncate(log.active.tail.positions[5] if log.active.tail else 0)
    assert reopen(disk, recovery_point=10).log_end_offset == 10
    with pytest.raises(CorruptLogError, match="ends at offset 10"):
        reopen(disk, recovery_point=11)


def test_segments_after_a_bad_batch_go_with_it() -> None:
    disk, _ = written(segments=3)
    disk.open(log_file(20)).pwrite(b"\xff", 200)
    recovered = reopen(disk)
    assert [segment.base_offset for segment in recovered.segments] == [0, 20]
    assert recovered.log_end_offset == 24
    assert recovered.epochs.latest == 1
    append(recovered, batch_of(1))
    assert recovered.log_end_offset == 25


def test_a_segment_below_the_recovery_point_is_not_read() -> None:
    disk, _ = written(segments=3)
    disk.open(log_file(0)).pwrite(b"\xff", 150)
    assert reopen(disk, recovery_point=41).log_end_offset == 60


@pytest.mark.parametrize("lost", [".index", ".timeindex", ".log"])
def test_a_crash_while_a_segment_is_made_is_repaired(lost: str) -> None:
    disk, log = written(segments=2)
    log.roll(NOW_MS)
    disk.remove(f"{DIRECTORY}/{40:020d}{lost}")
    for clean in (True, False):
        recovered = reopen(disk, clean=clean, recovery_point=40)
        assert recovered.log_end_offset == 40
        append(recovered, batch_of(1))
        recovered.close()
        check_indexes(recovered)


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_lost_indexes_are_made_anew(kind: str) -> None:
    disk, log = written(segments=3, batches=30)
    batches = read_all(log)
    for base in (0, 60, 120):
        disk.remove(f"{DIRECTORY}/{base:020d}{kind}")
    for clean in (True, False):
        recovered = reopen(disk, clean=clean, recovery_point=180)
        check_indexes(recovered)
        assert read_all(recovered) == batches


@pytest.mark.parametrize(("kind", "entry_bytes"), [(".index", 8), (".timeindex", 12)])
@pytest.mark.parametrize("is_torn", [False, True])
def test_indexes_that_were_emptied_or_torn_are_made_anew(kind: str, entry_bytes: int, is_torn: bool) -> None:
    disk, log = written(segments=3, batches=30)
    batches = read_all(log)
    for base in (0, 60, 120):
        disk.open(f"{DIRECTORY}/{base:020d}{kind}").truncate(entry_bytes + 1 if is_torn else 0)
    for clean in (True, False):
        recovered = reopen(disk, clean=clean, recovery_point=180)
        check_indexes(recovered)
        assert read_all(recovered) == batches
        assert all(segment.indexes.offsets.count > 5 for segment in recovered.segments)
        for timestamp in range(0, 180, 2):
            found = recovered.offset_for_timestamp(NOW_MS + timestamp, 180)
            assert found is not None
            assert found.offset == timestamp
        on_disk = recovered._disk
        assert all(on_disk.size(f"{DIRECTORY}/{base:020d}{kind}") > 5 * entry_bytes for base in (0, 60, 120))


def test_indexes_that_are_rightly_empty_are_not_made_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One batch longer than the interval has no entry, nor have records without timestamps."""
    disk = CrashDisk()
    disk.makedirs("/data")
    log = open_log(disk, DIRECTORY, config=CONFIG)
    append(log, batch_of(1, value=bytes(1000)))
    log.roll(NOW_MS)
    for _ in range(30):
        append(log, batch_of(1, timestamp=-1, value=bytes(100)))
    log.roll(NOW_MS)
    append(log, batch_of(1, timestamp=-1, value=bytes(1000)))
    log.close()
    assert disk.size(f"{DIRECTORY}/{0:020d}.index") == disk.size(f"{DIRECTORY}/{1:020d}.timeindex") == 0

    monkeypatch.setattr(Segment, "rebuild", None)
    assert reopen(disk, clean=True).log_end_offset == 32


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_an_index_that_somebody_removes_under_a_running_broker_is_only_missed(kind: str) -> None:
    disk, log = written(segments=3, batches=30)
    disk.remove(f"{DIRECTORY}/{60:020d}{kind}")
    assert [read_header(batch).base_offset for batch in read_all(log)] == list(range(0, 180, 2))
    found = log.offset_for_timestamp(NOW_MS + 100, 180)
    assert found is not None
    assert found.offset == 100


def test_an_index_that_was_preallocated_by_kafka_is_made_anew() -> None:
    disk, _ = written(batches=30)
    for kind in (".index", ".timeindex"):
        file = disk.open(f"{DIRECTORY}/{0:020d}{kind}")
        file.pwrite(bytes(10_000), file.size())
    for clean in (True, False):
        recovered = reopen(disk, clean=clean)
        check_indexes(recovered)
        assert recovered.active.indexes.offsets.count > 5


def test_an_index_without_its_segment_goes() -> None:
    disk, _ = written()
    disk.open(f"{DIRECTORY}/{500:020d}.index", create=True)
    copy = disk.crash_with_everything()
    open_log(copy, DIRECTORY, clean=True)
    assert not copy.exists(f"{DIRECTORY}/{500:020d}.index")


def test_a_lost_segment_ends_the_log_before_the_gap() -> None:
    disk, _ = written(segments=3)
    for kind in (".log", ".index", ".timeindex"):
        disk.remove(f"{DIRECTORY}/{20:020d}{kind}")
    recovered = reopen(disk)
    assert [segment.base_offset for segment in recovered.segments] == [0]
    assert recovered.log_end_offset == 20


def test_deleted_segments_that_come_back_with_a_hole_between_them_take_nothing_with_them() -> None:
    disk, log = written(segments=4)
    disk.remove(log_file(20))
    recovered = reopen(disk, log_start_offset=45)
    assert (recovered.log_start_offset, recovered.log_end_offset) == (45, 80)
    assert read_all(recovered) == [batch for batch in read_all(log) if read_header(batch).last_offset >= 45]


def test_a_lost_segment_in_which_the_log_began_is_no_gap_behind_what_was_deleted_before_it() -> None:
    """Else what it held is missing for good: the log would go on behind it."""
    disk, _ = written(segments=4)
    disk.remove(log_file(40))
    recovered = reopen(disk, log_start_offset=45, recovery_point=42)
    assert (recovered.log_start_offset, recovered.log_end_offset) == (45, 45)


def test_an_emptied_time_index_is_noticed_behind_records_without_times() -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    log = open_log(disk, DIRECTORY, config=TopicConfig(index_interval_bytes=1))
    for timestamp in (-1, -1, -1, NOW_MS):
        append(log, batch_of(1, timestamp=timestamp))
    log.roll(NOW_MS)
    log.close()
    disk.open(f"{DIRECTORY}/{0:020d}.timeindex").truncate(0)
    again = open_log(disk, DIRECTORY, config=TopicConfig(index_interval_bytes=1), recovery_point=4)
    assert again.max_timestamp == NOW_MS


def test_a_torn_snapshot_costs_a_replay_and_no_producer() -> None:
    disk, log = written(segments=3)
    for base in (20, 40):
        disk.open(f"{DIRECTORY}/{base:020d}.snapshot").truncate(30)
    for clean in (True, False):
        recovered = reopen(disk, clean=clean, recovery_point=60)
        assert recovered.producers.to_snapshot() == log.producers.to_snapshot()


def test_a_clean_log_that_is_torn_after_all_is_recovered() -> None:
    disk, log = written()
    disk.open(log_file(0)).pwrite(b"torn", log.active.size)
    assert reopen(disk, clean=True, recovery_point=20).log_end_offset == 20


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_clean_log_that_lost_what_was_safe_is_not_hidden(is_lost: bool) -> None:
    """A file that is gone, or was cut between two batches, leaves nothing that looks wrong by itself."""
    disk, log = written(segments=2)
    if is_lost:
        disk.remove(log_file(20))
    else:
        disk.open(log_file(20)).truncate(log.active.tail.positions[5] if log.active.tail else 0)
    with pytest.raises(CorruptLogError, match="everything below offset 40 was safe"):
        reopen(disk, clean=True, recovery_point=40)


def test_a_log_that_starts_after_its_end_begins_anew_at_its_start() -> None:
    disk, _ = written(segments=2)
    disk.open(log_file(20)).truncate(0)
    for clean in (True, False):
        recovered = reopen(disk, clean=clean, log_start_offset=33, recovery_point=40 if clean else 20)
        assert (recovered.log_start_offset, recovered.log_end_offset) == (33, 33)
        assert [segment.base_offset for segment in recovered.segments] == [33]
        assert append(recovered, batch_of(1)).base_offset == 33


def test_the_recovery_point_moves_only_with_a_sync() -> None:
    disk, _ = written(segments=2)
    recovered = reopen(disk, recovery_point=20)
    assert recovered.recovery_point == 20
    assert reopen(disk, clean=True, recovery_point=20).recovery_point == 40


def test_an_unclean_start_reads_from_the_recovery_point_on_and_a_clean_one_only_the_tail() -> None:
    disk, log = written(segments=3, batches=300)
    log.close()
    size = log.active.size
    copy = disk.crash_with_everything()
    open_log(copy, DIRECTORY, config=CONFIG, clean=True)
    assert copy.bytes_read < 8000
    copy = disk.crash_with_everything()
    recovered = open_log(copy, DIRECTORY, config=CONFIG, clean=False, recovery_point=1300)
    assert recovered.log_end_offset == 1800
    assert size < copy.bytes_read < 2.5 * size


def test_batches_larger_than_a_read_are_checked_whole() -> None:
    disk = CrashDisk()
    disk.makedirs("/data")
    log = open_log(disk, DIRECTORY)
    for _ in range(3):
        append(log, batch_of(1, value=bytes(3_000_000)))
    assert reopen(disk).log_end_offset == 3
    disk.open(log_file(0)).pwrite(b"x", log.active.size - 7)
    assert reopen(disk).log_end_offset == 2


def test_epochs_are_taken_from_the_batches() -> None:
    disk, _ = written(segments=3)
    recovered = reopen(disk)
    assert [tuple(entry) for entry in recovered.epochs.entries] == [(0, 0), (1, 20), (2, 40)]
    for batch in read_all(recovered):
        header = read_header(batch)
        assert recovered.epochs.epoch_of(header.base_offset) == header.partition_leader_epoch


def test_epochs_of_batches_that_a_crash_took_do_not_hide_later_ones() -> None:
    disk, log = written(segments=2)
    log.epochs.save()
    disk.remove(log_file(20))
    disk.open(log_file(0)).truncate(log.segments[0].indexes.offsets.entries()[0][1])
    after_one_crash = reopen(disk)
    end = after_one_crash.log_end_offset
    assert 0 < end < 20
    append(after_one_crash, batch_of(2), leader_epoch=1)
    # The file still says that epoch 1 began at offset 20.
    after_two = open_log(after_one_crash._disk.crash_with_everything(), DIRECTORY, clean=False)  # type: ignore[attr-defined]
    assert after_two.epochs.epoch_of(end) == 1


def test_the_rest_of_a_failed_write_after_what_is_safe_is_cut_off() -> None:
    disk, log = written(segments=2)
    size = log.segments[0].size
    disk.open(log_file(0)).pwrite(bytes(100), size)
    recovered = reopen(disk, recovery_point=20)
    assert (recovered.segments[0].size, recovered.log_end_offset) == (size, 40)
    assert len(read_all(recovered)) == 20
    disk.open(log_file(0)).truncate(size - 10)
    with pytest.raises(CorruptLogError):
        reopen(disk, recovery_point=20)


def test_a_topic_that_is_created_after_an_unclean_stop_waits_for_no_disk() -> None:
    """Its log is opened on the loop, by whoever touches it first."""
    disk = CrashDisk()
    disk.makedirs("/data")
    disk.fail_syncs = lambda: OSError("a sync on the loop")
    log = open_log(disk, DIRECTORY, config=CONFIG, clean=False)
    assert log.log_end_offset == log.recovery_point == 0
