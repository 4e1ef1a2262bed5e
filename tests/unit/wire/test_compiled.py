"""Compiled code reads records exactly as the plain reader does, believes no length, and never looks beyond its end."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import ApiError
from ottla.wire.batch import HEADER_BYTES
from ottla.wire.compiled import cache
from ottla.wire.compiled.batches import RECORD_GROWTH_MAX, Header, ScanEnd, copy_kept, scan_batches
from ottla.wire.compiled.records import BodyFault, Column, Refused, check_records, explain, parse_records
from ottla.wire.records import Record, build_batch, iterate
from tests.unit.wire.damage import damage

Drawn = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]

INT64 = st.integers(-(2**62), 2**62 - 1)
"""The difference of any two fits into 64 bits, too."""
OPTIONAL_BYTES = st.none() | st.binary(max_size=200)
HEADERS = st.lists(st.tuples(st.text(max_size=5), OPTIONAL_BYTES), max_size=3)
RECORDS = st.lists(st.tuples(INT64, OPTIONAL_BYTES, OPTIONAL_BYTES, HEADERS), min_size=1, max_size=20)


def records_of(drawn: Drawn) -> list[Record]:
    return [
        Record(offset, timestamp, key, value, tuple(headers))
        for offset, (timestamp, key, value, headers) in enumerate(drawn)
    ]


def as_array(data: bytes | bytearray) -> npt.NDArray[np.uint8]:
    return np.frombuffer(bytes(data) or b"\0", np.uint8)


def empty_columns(rows: int) -> npt.NDArray[np.int64]:
    return np.full((Column.COUNT, rows), -99, np.int64)


def parse(body: bytes, count: int, *, consecutive: bool = True) -> tuple[tuple[int, int, int], npt.NDArray[np.int64]]:
    columns = empty_columns(max(count, 1))
    return parse_records(as_array(body), 0, len(body), count, count - 1, consecutive, columns, 0), columns


def check(
    body: bytes | bytearray,
    count: int,
    *,
    behind: bytes = b"",
    requires_keys: bool = False,
    base_timestamp: int = 0,
    timestamps: tuple[int, int] = (-(2**63), 2**63 - 1),
    room: int = 100,
) -> tuple[tuple[int, int, int], int, int, list[list[int]]]:
    """The verdict, how many records are refused, the largest timestamp, and what was written about those records."""
    refused = np.full((Refused.COUNT, room), -99, np.int64)
    judgement = check_records(
        as_array(body + behind), 0, len(body), count, requires_keys, base_timestamp, *timestamps, refused
    )
    code, record, position, refused_count, largest = judgement
    named = min(refused_count, room)
    if named or code == BodyFault.NONE:
        assert (refused[:, named:] == -99).all()
    return (code, record, position), refused_count, largest, refused[:, :named].T.tolist()


def piece(body: bytes, position: int, length: int) -> bytes | None:
    return None if length < 0 else body[position : position + length]


@given(RECORDS)
def test_columns_hold_what_the_plain_reader_reads(
    drawn: Drawn,
) -> None:
    records = records_of(drawn)
    batch = build_batch(records)
    body = bytes(batch[HEADER_BYTES:])
    verdict, columns = parse(body, len(records))
    assert verdict == (BodyFault.NONE, len(records), len(body))
    for row, record in enumerate(iterate(batch)):
        column = columns[:, row].tolist()
        assert column[Column.OFFSET_DELTA] == record.offset
        assert column[Column.TIMESTAMP_DELTA] + records[0].timestamp == record.timestamp
        assert piece(body, column[Column.KEY_POSITION], column[Column.KEY_LENGTH]) == record.key
        assert piece(body, column[Column.VALUE_POSITION], column[Column.VALUE_LENGTH]) == record.value
        assert column[Column.HEADER_COUNT] == len(record.headers)


@pytest.mark.fuzz
@given(RECORDS, st.data())
def test_a_damaged_body_is_judged_as_the_plain_reader_judges_it(drawn: Drawn, data: st.DataObject) -> None:
    batch = build_batch(records_of(drawn))
    body = batch[HEADER_BYTES:]
    damage(body, data)
    verdict = check(body, len(drawn))[0]
    assert (verdict[0] == BodyFault.NONE) == plain_reader_accepts(batch[:HEADER_BYTES], body)
    assert parse(bytes(body), len(drawn))[0] == verdict


def plain_reader_accepts(header: bytearray, body: bytearray) -> bool:
    batch = bytearray(header + body)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    try:
        records = iterate(batch, crc_check=False)
    except ApiError:
        return False
    return [record.offset for record in records] == list(range(len(records)))


@pytest.mark.fuzz
@given(RECORDS, st.data(), st.binary(min_size=64, max_size=64))
def test_what_lies_behind_a_body_changes_nothing(
    drawn: Drawn,
    data: st.DataObject,
    behind: bytes,
) -> None:
    body = build_batch(records_of(drawn))[HEADER_BYTES:]
    damage(body, data)
    assert check(body, len(drawn), behind=behind) == check(body, len(drawn))


def test_a_count_that_the_body_has_no_room_for_is_refused_before_anything_is_read() -> None:
    body = bytes(build_batch([Record(0, 0, b"k", b"v")])[HEADER_BYTES:])
    for count in (-1, 2, 2**31 - 1):
        assert check(body, count)[0][0] == BodyFault.COUNT
        assert parse(body, count if count < 10 else 10)[0][0] == BodyFault.COUNT


def test_columns_that_are_too_few_are_not_written_over() -> None:
    body = bytes(build_batch([Record(offset, 0, b"k", b"v") for offset in range(3)])[HEADER_BYTES:])
    columns = empty_columns(4)
    assert parse_records(as_array(body), 0, len(body), 3, 2, True, columns, 2)[0] == BodyFault.COUNT
    assert (columns == -99).all()


def test_a_record_without_a_key_is_named() -> None:
    body = bytes(build_batch([Record(0, 0, b"", b"v"), Record(1, 0, None, b"v")])[HEADER_BYTES:])
    assert check(body, 2)[:2] == ((BodyFault.NONE, 2, len(body)), 0)
    verdict, refused_count, _, named = check(body, 2, requires_keys=True)
    assert (verdict[:2], refused_count) == ((BodyFault.KEY_MISSING, 1), 1)
    assert named == [[1, BodyFault.KEY_MISSING, 0]]


TIMES = st.integers(-3, 12)


@given(st.lists(st.tuples(TIMES, st.none() | st.just(b"k")), min_size=1, max_size=20), st.booleans(), TIMES, TIMES)
def test_each_record_that_a_topic_refuses_is_named_and_the_youngest_found(
    drawn: list[tuple[int, bytes | None]], requires_keys: bool, earliest: int, latest: int
) -> None:
    body = build_batch([Record(at, time, key, b"v") for at, (time, key) in enumerate(drawn)])[HEADER_BYTES:]
    expected = []
    for at, (time, key) in enumerate(drawn):
        if requires_keys and key is None:
            expected.append([at, int(BodyFault.KEY_MISSING), time])
        elif time != -1 and not earliest <= time <= latest:
            expected.append([at, int(BodyFault.TIMESTAMP_RANGE), time])
    verdict, refused_count, largest, named = check(
        body,
        len(drawn),
        requires_keys=requires_keys,
        base_timestamp=drawn[0][0],
        timestamps=(earliest, latest),
        room=5,
    )
    assert (refused_count, named) == (len(expected), expected[:5])
    assert largest == max(-1, *(time for time, _ in drawn))
    assert verdict[0] == max((code for _, code, _ in expected), default=BodyFault.NONE)
    if expected:
        assert verdict[1] == expected[0][0]


def test_a_body_that_lies_says_nothing_about_single_records() -> None:
    body = build_batch([Record(0, 0, None, b"v"), Record(1, 0, None, b"v")])[HEADER_BYTES:]
    verdict, refused_count, *_ = check(body + b"\0", 2, requires_keys=True)
    assert (verdict[0], refused_count) == (BodyFault.BODY_NOT_FILLED, 0)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"\xff\xff\xff\xff\xff\x01" + bytes(8), BodyFault.RECORD_LENGTH),
        (b"\xff\xff\xff\xff\x7f" + bytes(8), BodyFault.RECORD_LENGTH),
        (b"\x0e" + bytes(6), BodyFault.RECORD_LENGTH),
        (b"\x01" + bytes(6), BodyFault.RECORD_LENGTH),
        (b"\x18\x00" + b"\xff" * 9 + b"\x7f\x00", BodyFault.TIMESTAMP_DELTA),
        (b"\x0c\x00\x00\x02\x01\x01\x00", BodyFault.OFFSET_DELTA),
        (b"\x0c\x00\x00\x00\x03\x01\x00", BodyFault.KEY),
        (b"\x0c\x00\x00\x00\x08\x01\x00", BodyFault.KEY),
        (b"\x0c\x00\x00\x00\x01\x04\x00", BodyFault.VALUE),
        (b"\x0c\x00\x00\x00\x01\x01\x01", BodyFault.HEADERS),
        (b"\x0c\x00\x00\x00\x01\x01\x02", BodyFault.HEADERS),
        (b"\x0e\x00\x00\x00\x01\x01\x00\x00", BodyFault.RECORD_NOT_FILLED),
        (b"\x0c\x00\x00\x00\x01\x01\x00\x00", BodyFault.BODY_NOT_FILLED),
    ],
)
def test_each_lie_is_called_by_its_name(body: bytes, fault: BodyFault) -> None:
    verdict = check(body, 1)[0]
    assert BodyFault(verdict[0]) is fault
    assert explain(*verdict)


def test_offsets_may_have_gaps_only_where_compaction_has_been() -> None:
    body = bytes(build_batch([Record(0, 0, b"a", b""), Record(5, 0, b"b", b"")])[HEADER_BYTES:])
    columns = empty_columns(2)
    assert parse_records(as_array(body), 0, len(body), 2, 5, False, columns, 0)[0] == BodyFault.NONE
    assert parse_records(as_array(body), 0, len(body), 2, 4, False, columns, 0)[0] == BodyFault.OFFSET_DELTA
    assert parse_records(as_array(body), 0, len(body), 2, 5, True, columns, 0)[0] == BodyFault.OFFSET_DELTA


@given(RECORDS, INT64, st.data())
def test_records_that_stay_keep_their_bytes_but_for_the_new_base_of_their_times(
    drawn: Drawn, shift: int, data: st.DataObject
) -> None:
    records = records_of(drawn)
    body = bytes(build_batch(records)[HEADER_BYTES:])
    _, columns = parse(body, len(records))
    keep = np.array(data.draw(st.lists(st.booleans(), min_size=len(records), max_size=len(records))), np.uint8)
    target = np.zeros(len(body) + RECORD_GROWTH_MAX * len(records) + 3, np.uint8)
    end = copy_kept(as_array(body), columns, keep, 0, len(records), shift, target, 3)
    kept = [record for record, stays in zip(records, keep, strict=True) if stays]
    rebuilt = build_batch(kept, base_offset=0, last_offset_delta=len(records) - 1)
    expected = build_batch([record._replace(timestamp=record.timestamp) for record in kept], base_offset=0)
    header = rebuilt[:HEADER_BYTES]
    header[8:12] = (HEADER_BYTES - 12 + end - 3).to_bytes(4, "big")
    header[27:35] = wrapped(records[0].timestamp - shift).to_bytes(8, "big", signed=True)
    assert [plain(record) for record in iterate(header + target[3:end].tobytes(), crc_check=False)] == [
        plain(record) for record in iterate(expected)
    ]


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def plain(record: Record) -> Record:
    return record._replace(timestamp=wrapped(record.timestamp))


def test_headers_of_many_batches_come_in_one_table() -> None:
    batches = [
        build_batch([Record(7, 5, b"k", b"v"), Record(8, 9, b"k", b"v")], leader_epoch=3, producer_id=11,
                    producer_epoch=2, base_sequence=40),
        build_batch([Record(2**40, -1, None, None)], base_offset=2**40),
    ]  # fmt: skip
    data = b"".join(batches)
    headers = np.empty((10, Header.COUNT), np.int64)
    assert scan_batches(as_array(data), len(data), headers) == (2, len(data), ScanEnd.END, 0)
    first, second = headers[:2].tolist()
    assert first[Header.BASE_OFFSET] == 7
    assert first[Header.LAST_OFFSET_DELTA] == 1
    assert first[Header.LEADER_EPOCH] == 3
    assert (first[Header.BASE_TIMESTAMP], first[Header.MAX_TIMESTAMP]) == (5, 9)
    assert (first[Header.PRODUCER_ID], first[Header.PRODUCER_EPOCH], first[Header.BASE_SEQUENCE]) == (11, 2, 40)
    assert first[Header.RECORD_COUNT] == 2
    assert second[Header.POSITION] == first[Header.SIZE] == len(batches[0])
    assert (second[Header.BASE_OFFSET], second[Header.PRODUCER_ID], second[Header.LEADER_EPOCH]) == (2**40, -1, -1)


def test_a_scan_says_why_it_stopped() -> None:
    batch = bytes(build_batch([Record(0, 0, b"k", b"v")]))
    headers = np.empty((10, Header.COUNT), np.int64)
    cut = as_array(batch + batch[:-1])
    assert scan_batches(cut, len(cut), headers) == (1, len(batch), ScanEnd.PARTIAL, len(batch))
    assert scan_batches(cut, len(batch) + 60, headers) == (1, len(batch), ScanEnd.END, 0)
    old_format = bytearray(batch)
    old_format[16] = 1
    assert scan_batches(as_array(old_format), len(batch), headers)[:3] == (0, 0, ScanEnd.CORRUPT)
    no_length = bytearray(batch)
    no_length[8:12] = b"\xff\xff\xff\xff"
    assert scan_batches(as_array(no_length), len(batch), headers)[:3] == (0, 0, ScanEnd.CORRUPT)
    full = as_array(batch * 3)
    assert scan_batches(full, len(full), headers[:2])[:3] == (2, 2 * len(batch), ScanEnd.END)


class TestCache:
    def test_machine_code_is_kept_in_the_users_cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        directory = cache.kernel_cache_directory()
        assert directory == str(tmp_path / "ottla" / "numba" / cache.kernel_digest())
        assert os.stat(directory).st_mode & 0o077 == 0

    def test_a_cache_that_others_may_write_to_is_not_trusted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
        root = tmp_path / "ottla" / "numba"
        root.mkdir(parents=True)
        root.chmod(0o777)
        assert cache.kernel_cache_directory().startswith(str(tmp_path / "tmp"))

    def test_a_cache_that_cannot_be_made_is_no_failure(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / "tmp"))
        assert cache.kernel_cache_directory().startswith(str(tmp_path / "tmp"))

    def test_what_the_user_has_set_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("NUMBA_CACHE_DIR", "/somewhere")
        cache.use_kernel_cache()
        assert os.environ["NUMBA_CACHE_DIR"] == "/somewhere"
