"""`ottla log dump` must tell a good segment from a damaged one, and show what is in it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from ottla.cli import log
from ottla.cli.failures import CommandError
from ottla.cli.log_files import Row, SegmentDump, dump_index, dump_segment, dump_snapshot, json_row, text_row
from ottla.cli.options import Output
from ottla.log import producer_snapshot
from ottla.log.producer_snapshot import SnapshotEntry
from ottla.wire.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch

NAME = f"{100:020d}"


def batch(base: int, count: int, codec: Codec = Codec.NONE, attributes: int = 0) -> bytearray:
    records = [Record(base + index, 1_700_000_000_000, b"k", b"v%d" % index, (("h", b"x"),)) for index in range(count)]
    return build_batch(records, codec=codec, leader_epoch=4, attributes=attributes)


def dumped(directory: Path, data: bytes, *, with_records: bool = False) -> tuple[list[Row], list[str]]:
    path = directory / f"{NAME}.log"
    path.write_bytes(data)
    dump = SegmentDump()
    return list(dump_segment(path, dump, text_row if with_records else None)), dump.problems


def test_every_batch_is_shown_with_its_place(tmp_path: Path) -> None:
    first, second = batch(100, 3), batch(103, 2, Codec.ZSTD)
    rows, problems = dumped(tmp_path, bytes(first + second))
    assert problems == []
    assert [(row["position"], row["offsets"], row["records"], row["codec"], row["crc"]) for row in rows] == [
        (0, "100-102", 3, "none", "ok"),
        (len(first), "103-104", 2, "zstd", "ok"),
    ]


def test_records_are_shown_when_asked_for(tmp_path: Path) -> None:
    (row,), _ = dumped(tmp_path, bytes(batch(100, 2, Codec.GZIP)), with_records=True)
    content = row["content"]
    assert isinstance(content, list)
    assert [(found["offset"], found["key"], found["value"], found["headers"]) for found in content] == [
        (100, "k", "v0", ["h=x"]),
        (101, "k", "v1", ["h=x"]),
    ]


def test_tools_can_tell_null_from_text_and_bytes_from_text() -> None:
    null = json_row(Record(7, 5, None, b"null", [("h", None)]))
    assert (null["key"], null["value"], null["headers"]) == (None, "null", [{"key": "h", "value": None}])
    binary = json_row(Record(7, 5, b"base64:", b"\xff"))
    assert (binary["key"], binary["value"], binary["value_encoding"]) == ("base64:", "/w==", "base64")


def test_a_headers_name_cannot_move_the_cursor() -> None:
    assert text_row(Record(7, 5, None, b"", [("\x1b[2J", b"")]))["headers"] == ["\\x1b[2J="]


def test_a_snapshot_of_the_metadata_is_shown_as_batches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{NAME}-0000000001.checkpoint"
    path.write_bytes(batch(100, 3))
    log.dump(path, output=Output.JSON)
    shown = json.loads(capsys.readouterr().out)
    assert [found["offsets"] for found in shown["batches"]] == ["100-102"]


def test_a_marker_of_a_transaction_is_marked(tmp_path: Path) -> None:
    (row,), _ = dumped(tmp_path, bytes(batch(100, 1, attributes=CONTROL_BIT | TRANSACTIONAL_BIT)))
    assert row["flags"] == ["control", "transactional"]


def test_a_flipped_bit_is_found_and_what_follows_is_still_shown(tmp_path: Path) -> None:
    first, second = batch(100, 3), batch(103, 2)
    first[-1] ^= 1
    rows, (problem,) = dumped(tmp_path, bytes(first + second), with_records=True)
    assert [row["crc"] for row in rows] == ["BAD", "ok"]
    assert "at byte 0" in problem


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"\0" * 40, "zeros"),
        (b"\0" * 500, "no record batch"),
        (bytes(batch(103, 9))[:-1], "cut off"),
        (b"\xff" * 80, "no record batch"),
    ],
)
def test_a_tail_that_is_no_batch_is_a_problem(tmp_path: Path, tail: bytes, said: str) -> None:
    rows, problems = dumped(tmp_path, bytes(batch(100, 3)) + tail)
    assert len(rows) == 1
    assert len(problems) == 1
    assert said in problems[0]


def test_an_empty_segment_is_fine(tmp_path: Path) -> None:
    assert dumped(tmp_path, b"") == ([], [])


def test_index_entries_are_shown_without_the_unused_rest(tmp_path: Path) -> None:
    index = tmp_path / f"{NAME}.index"
    index.write_bytes(struct.pack(">iiii", 5, 256, 9, 512) + b"\0" * 800)
    assert dump_index(index) == [{"offset": 105, "position": 256}, {"offset": 109, "position": 512}]
    times = tmp_path / f"{NAME}.timeindex"
    times.write_bytes(struct.pack(">qi", 1_700_000_000_000, 256) + b"\0" * 1_200)
    assert dump_index(times) == [{"timestamp": 1_700_000_000_000, "offset": 356}]


def test_aborted_transactions_are_shown(tmp_path: Path) -> None:
    index = tmp_path / f"{NAME}.txnindex"
    index.write_bytes(struct.pack(">hqqqq", 0, 7, 101, 105, 103) + b"torn")
    assert dump_index(index) == [{"version": 0, "producer": 7, "first": 101, "last": 105, "stable": 103}]


def test_an_index_without_its_segments_name_is_refused(tmp_path: Path) -> None:
    stray = tmp_path / "copy.index"
    stray.write_bytes(b"")
    with pytest.raises(CommandError, match=r"copy\.index"):
        dump_index(stray)


def snapshot(*producers: SnapshotEntry) -> bytes:
    return producer_snapshot.encode(producers)


PRODUCER = SnapshotEntry(7, 2, 4, 120, 9, 1_700_000_000_000, -1, 111, ((0, 4, 116, 120, 1_700_000_000_000),))
MARKED = SnapshotEntry(8, 0, -1, -1, 0, 1_700_000_000_001, 5, -1)


def test_the_producers_that_a_log_remembers_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{NAME}.snapshot"
    path.write_bytes(snapshot(PRODUCER, MARKED))
    rows, problems = dump_snapshot(path)
    assert problems == []
    assert [(row["producer"], row["epoch"], row["sequences"]) for row in rows] == [
        (7, 2, "2147483643-4"),
        (8, 0, ""),
    ]
    assert [(row["offset"], row["transaction"], row["coordinator"]) for row in rows] == [(120, 111, ""), (-1, "", 5)]
    log.dump(path, output=Output.PLAIN)
    assert "2147483643-4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "rows", "said"),
    [
        (b"torn", 0, "no snapshot"),
        (snapshot(PRODUCER, MARKED)[:70], 1, "2 producers"),
        (snapshot(PRODUCER)[:-1] + b"?", 1, "checksum"),
    ],
)
def test_a_damaged_snapshot_is_shown_and_named(tmp_path: Path, data: bytes, rows: int, said: str) -> None:
    path = tmp_path / f"{NAME}.snapshot"
    path.write_bytes(data)
    found, problems = dump_snapshot(path)
    assert (len(found), said in problems[-1]) == (rows, True)


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "quorum-state", ".kafka_cleanshutdown", "meta.properties"])
def test_a_file_of_text_is_shown_as_it_is(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / name).write_text("0\n1\n")
    log.dump(tmp_path / name, output=Output.TABLE)
    assert capsys.readouterr().out == "0\n1\n"
