"""Compaction keeps the last record of each key, its offset and its producer's numbers, and loses nothing to a lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log import names
from ottla.log.compaction import CompactionError, ProducerTail, SegmentSource, group_segments
from ottla.log.compaction_read import CHUNK_BYTES, RUN_BODY_BYTES
from ottla.log.compaction_run import run_compaction
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.transaction_index import AbortedTransaction
from ottla.model.errors import CorruptLogError
from ottla.wire.batch import CONTROL_BIT, DELETE_HORIZON_BIT, HEADER_BYTES, LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT
from ottla.wire.compression import Codec
from ottla.wire.crc import crc32c
from ottla.wire.records import Record, build_batch, iterate
from tests.unit.log.files_of_batches import Batch, FilesOfBatches, view_of

NOW = 1_000_000
RETENTION = 1000


@pytest.fixture
def files() -> FilesOfBatches:
    return FilesOfBatches()


def batch_of(base_offset: int, *pairs: tuple[bytes | None, bytes | None], codec: int = 0, **more: int) -> bytearray:
    records = [Record(base_offset + at, 500 + at, key, value) for at, (key, value) in enumerate(pairs)]
    return build_batch(records, codec=codec, **more)


def kept(files: FilesOfBatches) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in files.records()]


# -- against a model


class Planned(NamedTuple):
    """A batch that a test will write."""

    pairs: list[tuple[bytes | None, bytes | None]]
    codec: int
    gap: int
    """Offsets that nobody has, in front of it."""


KEYS = st.none() | st.sampled_from([b"", b"a", b"b", b"ab", b"c" * 9, b"c" * 8 + b"d", b"c" * 40])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=30)), min_size=1, max_size=8)
PLANNED = st.builds(Planned, PAIRS, st.sampled_from(list(Codec)), st.sampled_from([0, 0, 0, 3]))
SEGMENTS = st.lists(st.lists(PLANNED, min_size=1, max_size=4), min_size=1, max_size=5)


def write(files: FilesOfBatches, segments: Sequence[Sequence[Planned]]) -> int:
    """Write segments; returns the offset after the last."""
    offset = 0
    for segment in segments:
        base_offset, batches = offset, []
        for planned in segment:
            offset += planned.gap
            batches.append(batch_of(offset, *planned.pairs, codec=planned.codec))
            offset += len(planned.pairs)
        files.add_segment(base_offset, batches)
    return offset


def survivors(records: Sequence[Record]) -> list[Record]:
    """What one round leaves, all of the log being dirty and no horizon having passed."""
    latest = {record.key: record.offset for record in records}
    return [record for record in records if record.key is not None and latest[record.key] == record.offset]


@settings(max_examples=150)
@given(SEGMENTS, st.sampled_from([1, 400, 1 << 30]))
def test_the_last_record_of_each_key_stays_where_it_was(segments: list[list[Planned]], segment_bytes: int) -> None:
    files = FilesOfBatches()
    end = write(files, segments)
    before, batches_before = files.records(), {header.base_offset: header for header, _ in files.batches()}
    result = files.compact(end, segment_bytes=segment_bytes)
    assert files.records() == survivors(before)
    assert view_of(files.records()) == view_of(before)
    assert result.first_dirty_offset == end
    assert result.records_kept == len(files.records())
    assert result.records_read == len(before)
    assert result.records_without_key == sum(record.key is None for record in before)
    for header, batch in files.batches():
        old = batches_before[header.base_offset]
        assert header.last_offset == old.last_offset
        assert header.crc == crc32c(batch[21:])
        if header.record_count:
            assert header.codec == old.codec
            assert header.max_timestamp == max(record.timestamp for record in iterate(batch))
    assert not [name for name in files.names() if name.endswith(names.CLEANED)]


@settings(max_examples=60)
@given(SEGMENTS)
def test_a_round_done_twice_gives_what_it_gave_once(segments: list[list[Planned]]) -> None:
    files = FilesOfBatches()
    end = write(files, segments)
    files.compact(end)
    once = files.batches()
    result = files.compact(end)
    assert files.batches() == once
    assert [group.is_changed for group in result.groups] == [False] * len(result.groups)


@settings(max_examples=60)
@given(SEGMENTS, st.data())
def test_rounds_over_parts_of_a_log_give_what_one_round_over_all_gives(
    segments: list[list[Planned]], data: st.DataObject
) -> None:
    files = FilesOfBatches()
    end = write(files, segments)
    before = files.records()
    bounds = [source.base_offset for source in files.segments[1:]]
    first_dirty = 0
    for bound in [
        *data.draw(st.lists(st.sampled_from(bounds), unique=True).map(sorted) if bounds else st.just([])),
        end,
    ]:
        sources = [source for source in files.segments if source.base_offset < bound]
        result = files.compact(bound, segments=sources, first_dirty_offset=first_dirty, segment_bytes=1)
        first_dirty = result.first_dirty_offset
        assert view_of(files.records()) == view_of(before)
    assert files.records() == survivors(before)


@settings(max_examples=60)
@given(SEGMENTS)
def test_a_map_that_is_too_small_takes_more_rounds_and_loses_nothing(segments: list[list[Planned]]) -> None:
    files = FilesOfBatches()
    end = write(files, segments)
    before = files.records()
    first_dirty, rounds = 0, 0
    while first_dirty < end:
        result = files.compact(end, first_dirty_offset=first_dirty, map_bytes_max=1)
        assert result.first_dirty_offset > first_dirty
        assert view_of(files.records()) == view_of(before)
        first_dirty, rounds = result.first_dirty_offset, rounds + 1
    assert files.records() == survivors(before)


# -- tombstones


def test_a_tombstone_stays_until_its_horizon_and_goes_then(files: FilesOfBatches) -> None:
    files.add_segment(0, [batch_of(0, (b"a", b"1"), (b"b", b"1")), batch_of(2, (b"a", None), (b"c", b"1"))])
    files.add_segment(4, [batch_of(4, (b"z", b"1"))])
    files.compact(5, now_ms=NOW, delete_retention_ms=RETENTION)
    assert kept(files) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1"), (4, b"z", b"1")]
    header = files.batches()[1][0]
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW + RETENTION
    assert [record.timestamp for record in files.records()] == [501, 500, 501, 500]
    files.compact(5, now_ms=NOW + RETENTION - 1, delete_retention_ms=RETENTION)
    assert (2, b"a", None) in kept(files)
    assert files.batches()[1][0].base_timestamp == NOW + RETENTION
    files.compact(5, now_ms=NOW + RETENTION, delete_retention_ms=RETENTION)
    assert kept(files) == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"z", b"1")]
    assert [record.timestamp for record in files.records()] == [501, 501, 500]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_horizon_is_written_in_the_codec_of_the_batch(files: FilesOfBatches, codec: Codec) -> None:
    files.add_segment(0, [batch_of(0, (b"a", None), (b"b", b"x" * 200), codec=codec), batch_of(2, (b"z", b""))])
    files.compact(3)
    header, batch = files.batches()[0]
    assert header.codec == codec
    assert header.attributes & DELETE_HORIZON_BIT
    assert [(record.key, record.timestamp) for record in iterate(batch)] == [(b"a", 500), (b"b", 501)]


def test_a_tombstone_that_the_map_has_not_reached_gets_no_horizon_yet(files: FilesOfBatches) -> None:
    """Else it could go in the round that first removes the value: a reader would never learn of it."""
    files.add_segment(0, [batch_of(0, (b"a", b"1")), batch_of(1, (b"a", None))])
    result = files.compact(2, map_bytes_max=1)
    assert result.first_dirty_offset == 1
    assert not files.batches()[1][0].attributes & DELETE_HORIZON_BIT


def test_a_newer_value_takes_a_tombstone_away_at_once(files: FilesOfBatches) -> None:
    files.add_segment(0, [batch_of(0, (b"a", None)), batch_of(1, (b"a", b"2"))])
    files.compact(2)
    assert kept(files) == [(1, b"a", b"2")]


def test_times_that_the_broker_stamped_survive_a_horizon(files: FilesOfBatches) -> None:
    batch = batch_of(0, (b"a", None), (b"b", b"1"), attributes=LOG_APPEND_TIME_BIT)
    files.add_segment(0, [batch, batch_of(2, (b"z", b"1"))])
    before = [record.timestamp for record in files.records()]
    files.compact(3)
    assert files.batches()[0][0].attributes & DELETE_HORIZON_BIT
    assert [record.timestamp for record in files.records()] == before


# -- producers


def test_the_last_batch_of_an_active_producer_stays_without_records(files: FilesOfBatches) -> None:
    numbers = {"producer_id": 7, "producer_epoch": 2}
    first = batch_of(0, (b"a", b"1"), (b"b", b"1"), base_sequence=0, **numbers)
    last = batch_of(2, (b"a", b"2"), (b"b", b"2"), base_sequence=2, codec=Codec.ZSTD, leader_epoch=5, **numbers)
    other = batch_of(4, (b"a", b"3"), (b"b", b"3"))
    files.add_segment(0, [first, last, other])
    files.compact(6, producers=[ProducerTail(7, 2, 3)])
    (empty, batch), (_, unchanged) = files.batches()
    assert unchanged == other
    assert len(batch) == HEADER_BYTES
    assert (empty.base_offset, empty.last_offset, empty.record_count) == (2, 3, 0)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (7, 2, 2)
    assert (empty.base_timestamp, empty.max_timestamp, empty.codec) == (-1, 501, 0)
    assert empty.partition_leader_epoch == 5
    once = files.batches()
    assert not files.compact(6, producers=[ProducerTail(7, 2, 3)]).groups[0].is_changed
    assert files.batches() == once
    files.compact(6)
    assert [header.base_offset for header, _ in files.batches()] == [4]


def test_the_last_batch_of_a_round_stays_so_that_its_end_is_known(files: FilesOfBatches) -> None:
    files.add_segment(0, [batch_of(0, (b"a", b"1"))])
    files.add_segment(1, [batch_of(1, (None, b"no key"), (None, b"no key"))])
    result = files.compact(3)
    assert [(header.base_offset, header.last_offset, header.record_count) for header, _ in files.batches()] == [
        (0, 0, 1),
        (1, 2, 0),
    ]
    assert result.records_without_key == 2


# -- transactions


def marker(offset: int, *, commit: bool, producer_id: int = 9, **more: int) -> bytearray:
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    return build_batch(
        [Record(offset, 600, key, b"\0\0\0\0\0\0")],
        producer_id=producer_id,
        producer_epoch=0,
        attributes=CONTROL_BIT | TRANSACTIONAL_BIT,
        **more,
    )


def in_transaction(offset: int, *pairs: tuple[bytes, bytes | None], producer_id: int = 9) -> bytearray:
    return batch_of(offset, *pairs, producer_id=producer_id, producer_epoch=0, attributes=TRANSACTIONAL_BIT)


def test_a_commit_marker_outlives_its_records_by_the_retention_of_tombstones(files: FilesOfBatches) -> None:
    files.add_segment(0, [in_transaction(0, (b"a", b"1")), marker(1, commit=True), batch_of(2, (b"a", b"2"))])
    first = files.compact(3)
    assert [header.base_offset for header, _ in files.batches()] == [1, 2]
    assert first.records_kept == 2
    assert not files.batches()[0][0].attributes & DELETE_HORIZON_BIT
    files.compact(3, now_ms=NOW + 1)
    assert files.batches()[0][0].base_timestamp == NOW + 1 + RETENTION
    assert iterate(files.batches()[0][1])[0].timestamp == 600
    files.compact(3, now_ms=NOW + RETENTION)
    assert [header.base_offset for header, _ in files.batches()] == [1, 2]
    files.compact(3, now_ms=NOW + 1 + RETENTION)
    assert [header.base_offset for header, _ in files.batches()] == [2]


def test_records_of_an_aborted_transaction_go_and_replace_nothing(files: FilesOfBatches) -> None:
    aborted = [AbortedTransaction(9, 1, 2, 2)]
    batches = [batch_of(0, (b"a", b"1")), in_transaction(1, (b"a", b"2")), marker(2, commit=False)]
    files.add_segment(0, [*batches, batch_of(3, (b"z", b"1"))])
    files.compact(4, aborted=aborted)
    assert [(record.offset, record.value) for record in files.records() if record.value != b"\0\0\0\0\0\0"] == [
        (0, b"1"),
        (3, b"1"),
    ]
    assert [header.base_offset for header, _ in files.batches()] == [0, 2, 3]
    index = files.disk.read(files.path(0, names.TRANSACTION_INDEX))
    assert index == b"\0\0" + b"".join(number.to_bytes(8, "big") for number in (9, 1, 2, 2))


def test_a_transaction_that_was_aborted_in_the_clean_part_is_over(files: FilesOfBatches) -> None:
    aborted = [AbortedTransaction(9, 0, 1, 2)]
    files.add_segment(0, [in_transaction(0, (b"a", b"1")), marker(1, commit=False), batch_of(2, (b"k", b"old"))])
    files.add_segment(3, [in_transaction(3, (b"k", b"new")), marker(4, commit=True), batch_of(5, (b"z", b"1"))])
    files.compact(6, first_dirty_offset=3, aborted=aborted)
    assert [record.offset for record in files.records() if record.key in (b"a", b"k")] == [3]


def test_a_marker_that_says_the_producers_last_epoch_stays(files: FilesOfBatches) -> None:
    files.add_segment(0, [marker(0, commit=True), batch_of(1, (b"z", b"1"))])
    producers = [ProducerTail(9, 0, -1)]
    for now_ms in (NOW, NOW + RETENTION, NOW + 3 * RETENTION):
        files.compact(2, now_ms=now_ms, producers=producers)
        assert [header.base_offset for header, _ in files.batches()] == [0, 1]
    files.compact(2, now_ms=NOW + 3 * RETENTION)
    assert [header.base_offset for header, _ in files.batches()] == [1]


def test_control_records_of_other_kinds_never_go(files: FilesOfBatches) -> None:
    other = build_batch([Record(0, 0, b"\0\0\0\2", b"")], attributes=CONTROL_BIT)
    files.add_segment(0, [other, batch_of(1, (b"z", b"1"))])
    for now_ms in (NOW, NOW + 2 * RETENTION, NOW + 4 * RETENTION):
        files.compact(2, now_ms=now_ms)
    assert files.batches()[0][1] == other


# -- lies and damage


def lying(batch: bytearray, position: int, content: bytes) -> bytearray:
    """A batch with a right checksum over wrong content."""
    changed = bytearray(batch)
    changed[position : position + len(content)] = content
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return changed


SOUND = batch_of(2, (b"a", b"old"), (b"liar", b"x"))
LIES: dict[str, bytearray] = {
    "more records than there are": lying(SOUND, 57, (3).to_bytes(4, "big")),
    "fewer records than there are": lying(SOUND, 57, (1).to_bytes(4, "big")),
    "a negative count": lying(SOUND, 57, b"\xff\xff\xff\xff"),
    "a huge count": lying(SOUND, 57, b"\x7f\xff\xff\xff"),
    "a record that leaves the batch": lying(SOUND, HEADER_BYTES, b"\x7e"),
    "a key that leaves its record": lying(SOUND, HEADER_BYTES + 4, b"\x7e"),
    "an offset beyond the last": lying(SOUND, 23, (0).to_bytes(4, "big")),
    "gzip that is none": lying(SOUND, 21, b"\0\1"),
    "zstd that is none": lying(SOUND, 21, b"\0\4"),
    "a codec that is none": lying(SOUND, 21, b"\0\7"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_batch_that_lies_stays_as_it_is_and_takes_nothing_with_it(files: FilesOfBatches, lie: str) -> None:
    liar = LIES[lie]
    files.add_segment(0, [batch_of(0, (b"a", b"1"), (b"b", b"1")), liar])
    files.add_segment(4, [batch_of(4, (b"a", b"2")), batch_of(5, (b"z", b"1"))])
    result = files.compact(6)
    assert result.faults_count == 1
    assert result.faults[0].base_offset == 2
    assert result.faults[0].segment_base_offset == 0
    assert result.faults[0].reason
    assert [batch for _, batch in files.batches()][1] == liar
    sound = [record for _, batch in files.batches() if batch != liar for record in iterate(batch)]
    assert [(record.offset, record.key) for record in sound] == [(1, b"b"), (4, b"a"), (5, b"z")]


def test_a_control_batch_that_lies_stays(files: FilesOfBatches) -> None:
    liar = lying(marker(0, commit=True), 57, (2).to_bytes(4, "big"))
    files.add_segment(0, [liar, batch_of(1, (b"z", b"1"))])
    assert files.compact(2).faults_count == 1
    assert files.batches()[0][1] == liar


def test_a_batch_with_a_wrong_checksum_ends_the_job_and_nothing_changes(files: FilesOfBatches) -> None:
    damaged = batch_of(1, (b"a", b"2"))
    damaged[-1] ^= 1
    files.add_segment(0, [batch_of(0, (b"a", b"1"))])
    files.add_segment(1, [damaged])
    before = files.names()
    with pytest.raises(CorruptLogError, match="CRC"):
        files.compact(2)
    with pytest.raises(CorruptLogError, match="CRC"):
        files.compact(2, first_dirty_offset=2)
    assert files.names() == before


@pytest.mark.parametrize("bit", [0, 1, 2, 33, 62, 63])
def test_a_batch_whose_offset_is_out_of_order_ends_the_job_and_nothing_changes(files: FilesOfBatches, bit: int) -> None:
    """No checksum covers it. Believed, the older value of a key would pass for the latest, which would go."""
    damaged = batch_of(1, (b"a", b"old"))
    damaged[:8] = (1 ^ 1 << bit).to_bytes(8, "big")
    files.add_segment(0, [batch_of(0, (b"b", b"1")), damaged])
    files.add_segment(2, [batch_of(2, (b"a", b"new")), batch_of(3, (b"c", b"1"))])
    before = files.names()
    with pytest.raises(CorruptLogError, match=r"offset .* of the batch at byte \d+ is out of order"):
        files.compact(4)
    with pytest.raises(CorruptLogError, match="is out of order"):
        files.compact(4, first_dirty_offset=2)
    assert files.names() == before


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\x01" * 30, bytes(batch_of(1, (b"b", b"2")))[:-1]])
def test_a_segment_that_ends_in_no_batch_ends_the_job(files: FilesOfBatches, tail: Batch) -> None:
    files.add_segment(0, [batch_of(0, (b"a", b"1")), tail])
    before = files.names()
    with pytest.raises(CorruptLogError):
        files.compact(2)
    assert files.names() == before


def test_a_job_that_is_cancelled_leaves_no_file(files: FilesOfBatches) -> None:
    files.add_segment(0, [batch_of(0, (b"a", b"1"))])
    files.add_segment(1, [batch_of(1, (b"a", b"2"))])
    before, calls = files.names(), 0

    def cancel_at_the_last(_size: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 8:
            raise CompactionError("cancelled")

    with pytest.raises(CompactionError):
        run_compaction(files.job(2), files.disk, pace=cancel_at_the_last)
    assert files.names() == before


def test_a_chunk_that_stands_for_much_more_can_be_ended_in_its_middle(files: FilesOfBatches) -> None:
    """A few kilobytes may stand for gigabytes: who counts on a sign of life must not wait for the end of a chunk."""
    batches = [batch_of(at, (b"a", bytes(RUN_BODY_BYTES // 2 + 1)), codec=Codec.ZSTD) for at in range(6)]
    files.add_segment(0, batches)
    assert sum(map(len, batches)) < CHUNK_BYTES
    paces: list[int] = []
    run_compaction(files.job(6), files.disk, pace=paces.append)
    assert paces.count(0) >= 2 * len(batches)


def test_what_an_earlier_job_left_behind_is_removed_first(files: FilesOfBatches) -> None:
    files.add_segment(5, [batch_of(5, (b"a", b"1")), batch_of(6, (b"a", b"2"))])
    stale = files.path(0, names.LOG, names.CLEANED)
    files.disk.open(stale, create=True)
    run_compaction(files.job(7), files.disk)
    assert not files.disk.exists(stale)


# -- files


def test_a_log_that_is_clean_already_is_not_written_again(files: FilesOfBatches) -> None:
    files.add_segment(0, [batch_of(0, (b"a", b"1")), batch_of(1, (b"b", b"1"))])
    before = files.names()
    result = files.compact(2)
    assert not result.groups[0].is_changed
    assert result.bytes_written == 0
    assert files.names() == before


def test_small_segments_become_one_and_none_grows_beyond_the_limit(files: FilesOfBatches) -> None:
    for offset in range(6):
        files.add_segment(offset, [batch_of(offset, (b"%d" % offset, b"v" * 100))])
    size = files.segments[0].size
    files.compact(6, segment_bytes=2 * size + 1)
    assert [source.base_offset for source in files.segments] == [0, 2, 4]
    assert [record.offset for record in files.records()] == list(range(6))


def test_segments_are_not_joined_beyond_what_an_index_can_say(files: FilesOfBatches) -> None:
    job = files.job(
        2**31 + 5,
        segments=[SegmentSource(0, 10, 8, 12), SegmentSource(2**31 - 2, 10, 8, 12), SegmentSource(2**31, 10, 8, 12)],
    )
    assert [[source.base_offset for source in group] for group in group_segments(job, 2**31 + 5)] == [
        [0, 2**31 - 2],
        [2**31],
    ]
    small = files.job(9, segments=[SegmentSource(0, 1, 8, 12), SegmentSource(4, 1, 8, 12)], segment_index_bytes=20)
    assert [len(group) for group in group_segments(small, 9)] == [1, 1]


def test_indexes_of_a_cleaned_segment_lead_to_its_batches(files: FilesOfBatches) -> None:
    for base in range(0, 200, 20):
        files.add_segment(
            base, [batch_of(at, (b"%d" % (at % 50), b"v" * 50), (b"x", b"y")) for at in range(base, base + 20, 2)]
        )
    files.compact(200, index_interval_bytes=100)
    offsets = list(OffsetIndex.ENTRY.iter_unpack(files.disk.read(files.path(0, names.OFFSET_INDEX))))
    times = list(TimeIndex.ENTRY.iter_unpack(files.disk.read(files.path(0, names.TIME_INDEX))))
    assert len(offsets) > 5
    positions, position = {}, 0
    for header, batch in files.batches():
        positions[header.last_offset] = position
        position += len(batch)
    assert all(positions[last_offset] == at for last_offset, at in offsets)
    assert times[-1][0] == max(header.max_timestamp for header, _ in files.batches())


def test_a_batch_larger_than_what_is_read_at_a_time_is_cleaned_too(files: FilesOfBatches) -> None:
    huge = batch_of(0, (b"a", b"x" * (3 << 20)), (b"b", b"y"), (b"a", b"z"))
    files.add_segment(0, [huge, batch_of(3, (b"z", b""))])
    files.compact(4)
    assert kept(files) == [(1, b"b", b"y"), (2, b"a", b"z"), (3, b"z", b"")]


def test_many_batches_that_decompress_to_much_are_cleaned_in_turns(files: FilesOfBatches) -> None:
    batches = [batch_of(at, (b"%d" % (at % 3), bytes(3 << 20)), codec=Codec.ZSTD) for at in range(8)]
    files.add_segment(0, batches)
    files.compact(8)
    assert [record.offset for record in files.records()] == [5, 6, 7]
