"""What is printed must be what was stored, for people, for kcat's scripts and for programs."""

from __future__ import annotations

import json

import pytest

from ottla.cli.failures import UsageError
from ottla.cli.record_format import as_json, compile_format, plain, readable, readable_name, time_text
from ottla.cli.record_input import parse_json
from ottla.client.consumer import ConsumedRecord

RECORD = ConsumedRecord("orders", 3, 42, 1_700_000_000_123, False, b"k", b"value", (("a", b"1"), ("b", None)))
EMPTY = RECORD._replace(key=None, value=None, headers=())
BINARY = RECORD._replace(key=b"\xff", value=b"\x00\xfe", headers=(("h", b"\xfd"),))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("%t", b"orders"),
        ("%p", b"3"),
        ("%o", b"42"),
        ("%k", b"k"),
        ("%s", b"value"),
        ("%K", b"1"),
        ("%S", b"5"),
        ("%R%s", b"\0\0\0\5value"),
        ("%h", b"a=1,b=NULL"),
        ("%T", b"1700000000123"),
        ("%%", b"%"),
        ("%p:%o %k=%s\\n", b"3:42 k=value\n"),
        ("\\t\\r\\\\\\x41", b"\t\r\\A"),
        ("čau", "čau".encode()),
        ("", b""),
    ],
)
def test_kcats_formats_are_understood(text: str, written: bytes) -> None:
    assert compile_format(text)(RECORD) == written


def test_null_has_no_text_and_length_minus_one() -> None:
    assert compile_format("[%k|%s|%K|%S|%h]")(EMPTY) == b"[||-1|-1|]"


def test_a_headers_name_may_be_no_text() -> None:
    record = RECORD._replace(headers=(("\udcff\x1b[2J", b"1"),))
    assert compile_format("%h")(record) == b"\xff\x1b[2J=1"
    assert json.loads(as_json(record).decode())["headers"] == [{"key": "\udcff\x1b[2J", "value": "1"}]
    assert readable_name("\x1b[2J") == "\\x1b[2J"
    assert readable_name("\udcff") == "base64:/w=="


def test_binary_values_are_written_as_they_are() -> None:
    assert compile_format("%s")(BINARY) == b"\x00\xfe"


@pytest.mark.parametrize("text", ["%q", "100%", "\\q", "end\\"])
def test_a_format_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--format"):
        compile_format(text)


def test_json_holds_everything_on_one_line() -> None:
    line = as_json(RECORD._replace(value=b"two\nlines"))
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_123,
        "timestamp_type": "CreateTime",
        "key": "k",
        "value": "two\nlines",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }


@pytest.mark.parametrize("record", [RECORD, EMPTY, BINARY], ids=["text", "null", "binary"])
def test_what_consume_writes_produce_reads_back(record: ConsumedRecord) -> None:
    read = parse_json(as_json(record))
    assert (read.key, read.value, read.headers) == (record.key, record.value, record.headers)
    assert (read.partition, read.timestamp) == (record.partition, record.timestamp)


def test_the_brokers_time_is_told_from_the_producers() -> None:
    assert json.loads(as_json(RECORD._replace(log_append_time=True)))["timestamp_type"] == "LogAppendTime"


@pytest.mark.parametrize(
    ("keys", "headers", "written"),
    [
        (False, False, b"value\n"),
        (True, False, b"k\tvalue\n"),
        (True, True, b"a=1,b=NULL\tk\tvalue\n"),
    ],
)
def test_plain_lines_show_what_was_asked_for(keys: bool, headers: bool, written: bytes) -> None:
    assert plain(keys=keys, headers=headers)(RECORD) == written


@pytest.mark.parametrize(
    ("content", "shown"),
    [(b"text", "text"), (None, "null"), (b"\xff", "base64:/w=="), (b"a\nb\tc", "a\\nb\\tc"), (b"\x1b[2J", "\\x1b[2J")],
)
def test_a_record_cannot_take_over_the_terminal(content: bytes | None, shown: str) -> None:
    assert readable(content) == shown


@pytest.mark.parametrize(
    ("timestamp", "shown"),
    [(1_700_000_000_123, "2023-11-14 22:13:20.123Z"), (0, "1970-01-01 00:00:00.000Z"), (-1, ""), (2**62, str(2**62))],
)
def test_any_timestamp_can_be_shown(timestamp: int, shown: str) -> None:
    assert time_text(timestamp) == shown
