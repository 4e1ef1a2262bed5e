"""Keys and values alone: the same that reading whole records gives, and no more belief."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from ottla.wire.record_entries import (
    RUN_MAX,
    RUN_MIN,
    TOGETHER_MAX,
    BatchOfEntries,
    Entry,
    batches_of_entries,
    key_of,
    read_entries,
)
from ottla.wire.records import Record, build_batch, iterate

Pair = tuple[bytes | None, bytes | None]


def pairs_of(entries: list[Entry] | None) -> list[Pair]:
    return [(key_of(start, number), value) for start, number, value in entries or ()]


def pairs_in(batches: list[BatchOfEntries]) -> list[Pair]:
    return [pair for batch in batches for pair in pairs_of(batch.entries)]


field = st.none() | st.binary(max_size=400)
records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 2**40),
        field,
        field,
        st.lists(st.tuples(st.text(max_size=3), field), max_size=2),
    ),
    max_size=70,
)


@given(records, st.integers(0, 4))
def test_pairs_are_those_of_the_records(given_records: list[Record], codec: int) -> None:
    numbered = [record._replace(offset=offset) for offset, record in enumerate(given_records)]
    batch = bytes(build_batch(numbered, codec=codec))
    (found,) = batches_of_entries(batch, 0)
    last_offset = max(len(numbered) - 1, 0)
    expected = [(record.key, record.value) for record in iterate(batch)]
    assert BatchOfEntries(*found)[:-1] == (0, len(batch), last_offset, -1, False)
    assert pairs_of(BatchOfEntries(*found).entries) == expected


@given(
    st.lists(st.tuples(st.integers(0, 130), st.integers(0, 130), st.integers(1, 30)), max_size=8),
    st.integers(0, 8000),
    st.sampled_from([0, 1, 100]),
)
def test_records_that_are_alike_are_read_like_others(
    runs: list[tuple[int, int, int]], first_delta: int, time_step: int
) -> None:
    records: list[Record] = []
    for key_bytes, value_bytes, times in runs:
        for _ in range(times):
            number = len(records)
            key, value = bytes([number % 256]) * key_bytes, bytes([number // 3 % 256]) * value_bytes
            records.append(Record(first_delta + number, 1 + number * time_step, key, value))
    batch = bytes(build_batch(records, base_offset=0))
    (found,) = batches_of_entries(batch, 0)
    assert pairs_of(BatchOfEntries(*found).entries) == [(record.key, record.value) for record in records]


@given(st.binary(max_size=60), st.integers(0, 5))
def test_damage_is_corruption_or_fits_into_the_bytes(tail: bytes, count: int) -> None:
    refused: list[ErrorCode] = []
    try:
        entries = read_entries(b"head" + tail + b"\x00\x00\x00", 4, 4 + len(tail), count)
    except ApiError as error:
        refused = [error.code]
        entries = []
    assert refused in ([], [ErrorCode.CORRUPT_MESSAGE])
    if not refused:
        assert len(entries) == count
        assert sum(len(part or b"") for pair in pairs_of(entries) for part in pair) <= len(tail)


def test_batches_are_told_apart() -> None:
    first = build_batch([Record(10, 1, b"a", b"1")], base_offset=10)
    in_transaction = build_batch(
        [Record(11, 1, b"b", None)], base_offset=11, producer_id=7, producer_epoch=0, attributes=TRANSACTIONAL_BIT
    )
    idempotent = build_batch([Record(12, 1, b"c", b"")], base_offset=12, producer_id=8, producer_epoch=0)
    marker = build_batch(
        [Record(13, 1, b"\x00" * 4, b"\x00" * 6)], base_offset=13, attributes=TRANSACTIONAL_BIT | CONTROL_BIT
    )
    damaged = build_batch([Record(14, 1, b"d", b"2")], base_offset=14)
    damaged[-1] ^= 1
    data = bytes(first + in_transaction + idempotent + marker + damaged + first)[:-1]
    found = [BatchOfEntries(*batch)[2:] for batch in batches_of_entries(data, 11)]
    assert found == [
        (11, 7, False, [(b"b", None, None)]),
        (12, -1, False, [(b"c", None, b"")]),
        (13, -1, True, None),
        (14, -1, False, None),
    ]
    with pytest.raises(ApiError):
        list(batches_of_entries(bytes(200), 0))


def test_a_bomb_is_passed_over() -> None:
    batch = bytes(build_batch([Record(0, 1, b"k", bytes(1_000_000))], codec=4))
    (found,) = batches_of_entries(batch, 0, 10_000)
    assert BatchOfEntries(*found).entries is None


lone_fields = (
    st.none() | st.sampled_from([b"", b"k", b"k" * 60, b"k" * 62, b"k" * 70, b"l" * 5000]) | st.binary(max_size=3)
)
lone_records = st.builds(
    Record,
    st.just(0),
    st.just(5),
    lone_fields,
    lone_fields,
    st.just(()) | st.just((("h", b""),)) | st.just((("h", None),)),
)


@given(st.lists(st.tuples(lone_records, st.integers(0, 9)), min_size=1, max_size=12))
def test_neighbours_of_one_record_each_are_read_like_others(given_records: list[tuple[Record, int]]) -> None:
    data, expected = b"", []
    for offset, (record, fate) in enumerate(given_records):
        batch = build_batch(
            [record._replace(offset=offset)],
            base_offset=offset,
            producer_id=8 if fate == 1 else -1,
            attributes=TRANSACTIONAL_BIT if fate == 2 else 0,
        )
        if fate == 0:
            batch[-1] ^= 1
        else:
            expected.append((record.key, record.value))
        data += batch
    found = [BatchOfEntries(*batch) for batch in batches_of_entries(data, 0)]
    assert pairs_in(found) == expected
    assert [batch.position for batch in found] == [0, *(batch.end for batch in found[:-1])]
    assert found[-1].end == len(data)
    assert found[-1].last_offset == len(given_records) - 1


@given(
    st.lists(st.tuples(st.lists(lone_records, min_size=1, max_size=3), st.integers(0, 9)), min_size=1, max_size=9),
    st.data(),
)
def test_a_cut_takes_the_cut_batch_and_no_other(batches: list[tuple[list[Record], int]], data: st.DataObject) -> None:
    pieces, expected, offset = [], [], 0
    for records, fate in batches:
        numbered = [record._replace(offset=offset + delta) for delta, record in enumerate(records)]
        batch = build_batch(numbered, base_offset=offset, codec=4 if fate == 1 else 0)
        if fate == 0:
            batch[-1] ^= 1
        expected.append([] if fate == 0 else [(record.key, record.value) for record in records])
        pieces.append(bytes(batch))
        offset += len(records)
    whole = b"".join(pieces)
    cut = data.draw(st.integers(0, len(whole)))
    count = next(number for number in range(len(pieces), -1, -1) if sum(map(len, pieces[:number])) <= cut)
    found = [BatchOfEntries(*batch) for batch in batches_of_entries(whole[:cut], 0)]
    assert pairs_in(found) == [pair for pairs in expected[:count] for pair in pairs]
    if count:
        assert found[-1].end == sum(map(len, pieces[:count]))
        assert found[-1].last_offset + 1 == sum(len(records) for records, _ in batches[:count])
    else:
        assert found == []


@pytest.mark.parametrize("cut", [0, 1, 10, 60, 69])
def test_neighbours_of_one_record_each_come_together(cut: int) -> None:
    keys = [b"k" + offset.to_bytes(4) for offset in range(6)]
    batches = [build_batch([Record(offset, 1, key, b"v")], base_offset=offset) for offset, key in enumerate(keys)]
    whole = batches if cut == 0 else batches[:-1]
    data = b"".join(batches)
    (found,) = batches_of_entries(data[: len(data) - cut], 1)
    entries: list[Entry] = [(b"k", offset, b"v") for offset in range(1, len(whole))]
    expected = BatchOfEntries(len(batches[0]), sum(map(len, whole)), len(whole) - 1, -1, False, entries)
    assert BatchOfEntries(*found) == expected


@given(
    st.lists(
        st.tuples(st.sampled_from([3, 5, 5, 6, 70]), st.integers(1, 2 * RUN_MIN + 5), st.integers(0, 12)),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 3),
)
def test_a_run_of_batches_is_read_like_each_of_them(taken: list[tuple[int, int, int]], from_offset: int) -> None:
    """Runs of batches with one record each; one of some has another attribute, delta, header or checksum."""
    data, expected, skipped, offset = bytearray(), [], 0, 0
    for key_bytes, count, oddity in taken:
        for number in range(count):
            odd = oddity if number == count // 2 else 0
            key = (b"%03d" % offset * 30)[:key_bytes]
            record = Record(offset, 1, key, b"v%03d" % offset, (("h", b"1"),) if odd == 1 else ())
            batch = build_batch([record], base_offset=offset, codec=4 if odd == 2 else 0)
            if odd == 3:
                batch[-2] ^= 1
            elif odd == 4:
                batch[17] ^= 1
            if offset >= from_offset:
                if odd in (3, 4):
                    skipped += 1
                else:
                    expected.append((record.key, record.value))
            data += batch
            offset += 1
    found = [BatchOfEntries(*batch) for batch in batches_of_entries(bytes(data), from_offset)]
    assert pairs_in(found) == expected
    assert sum(batch.entries is None for batch in found) == skipped
    assert [batch.position for batch in found[1:]] == [batch.end for batch in found[:-1]]
    if offset > from_offset:
        assert found[-1].end == len(data)
        assert found[-1].last_offset == offset - 1


@pytest.mark.parametrize("magic_at", [0, 1, 5, 40])
def test_what_is_no_batch_ends_a_run(magic_at: int) -> None:
    batches = [build_batch([Record(number, 1, b"key-1", b"v")], base_offset=number) for number in range(50)]
    batches[magic_at][16] = 9
    found: list[Entry] = []
    reading = batches_of_entries(b"".join(batches), 0)
    with pytest.raises(ApiError):
        found.extend(entry for batch in reading for entry in BatchOfEntries(*batch).entries or ())
    assert found == [(b"k", int.from_bytes(b"ey-1"), b"v")] * magic_at


@pytest.mark.parametrize("key_bytes", [[9], [9, 12, 40]])
def test_very_many_neighbours_come_in_pieces(key_bytes: list[int]) -> None:
    batches = [
        build_batch([Record(offset, 1, b"%09d" % offset + bytes(key_bytes[offset % len(key_bytes)]), b"v")])
        for offset in range(3 * TOGETHER_MAX)
    ]
    found = [BatchOfEntries(*batch) for batch in batches_of_entries(b"".join(batches), 0)]
    assert [(pair[0] or b"")[:9] for pair in pairs_in(found)] == [b"%09d" % offset for offset in range(len(batches))]
    assert [batch.position for batch in found] == [0, *(batch.end for batch in found[:-1])]
    assert max(len(batch.entries or ()) for batch in found) <= TOGETHER_MAX + RUN_MAX
