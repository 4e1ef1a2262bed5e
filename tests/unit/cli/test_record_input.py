"""A line must become the record that its author meant, or an error that names the line's fault."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.cli.failures import CommandError
from ottla.cli.record_input import InputRecord, LineReader, parse_json, read_chunks


@contextmanager
def pipe_with(*writes: bytes) -> Iterator[int]:
    reading, writing = os.pipe()
    for data in writes:
        os.write(writing, data)
    os.close(writing)
    try:
        yield reading
    finally:
        os.close(reading)


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\nb", [b"a", b"b"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"\n\n", [b"", b""]),
        (b"", []),
        (b"\xff\x00\n", [b"\xff\x00"]),
    ],
)
def test_lines_are_found_whatever_ends_them(data: bytes, lines: list[bytes]) -> None:
    with pipe_with(data) as descriptor:
        assert [line for chunk in read_chunks(descriptor) for line in chunk] == lines


def test_a_line_that_comes_in_pieces_is_one_line() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"first\nsec")
    chunks = read_chunks(reading)
    assert next(chunks) == [b"first"]
    os.write(writing, b"ond\n")
    assert next(chunks) == [b"second"]
    os.close(writing)
    assert list(chunks) == []
    os.close(reading)


def test_a_very_long_line_costs_no_more_than_many_short_ones() -> None:
    pieces = iter([b"first\n", *[b"x" * 65_536] * 700, b"y\nlast"])
    started_at = time.process_time()
    lines = [line for chunk in read_chunks(0, lambda _descriptor, _size: next(pieces, b"")) for line in chunk]
    assert time.process_time() - started_at < 2
    assert lines == [b"first", b"x" * 65_536 * 700 + b"y", b"last"]


def test_a_line_that_never_ends_is_refused() -> None:
    with pytest.raises(CommandError, match="64 MB"):
        list(read_chunks(0, lambda _descriptor, _size: b"x" * 65_536))


def test_a_plain_line_is_a_value() -> None:
    assert LineReader().parse(b"a:b") == InputRecord(b"a:b")


def test_a_key_ends_at_the_first_separator() -> None:
    reader = LineReader(key_separator=b"::")
    assert reader.parse(b"k::v::w") == InputRecord(b"v::w", b"k")
    assert reader.parse(b"::") == InputRecord(b"", b"")
    with pytest.raises(ValueError, match="separator"):
        reader.parse(b"no key")


def test_a_marker_stands_for_null() -> None:
    reader = LineReader(key_separator=b":", null_marker=b"NULL")
    assert reader.parse(b"k:NULL") == InputRecord(None, b"k")
    assert reader.parse(b"NULL:v") == InputRecord(b"v", None)
    assert reader.parse(b"k:NULLS") == InputRecord(b"NULLS", b"k")


def test_a_json_line_names_everything() -> None:
    line = b'{"key": "k", "value": "v", "headers": {"h": "x"}, "partition": 2, "timestamp": 5}'
    assert parse_json(line) == InputRecord(b"v", b"k", (("h", b"x"),), 2, 5)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"{}", None),
        (b'{"value": null}', None),
        (b'{"value": ""}', b""),
        (b'{"value": {"n": [1, "\xc4\x8d"]}}', '{"n":[1,"č"]}'.encode()),
        (b'{"value": 7}', b"7"),
        (b'{"value": "\\ud800"}', b"\xed\xa0\x80"),
        (b'{"value": ["\\ud800"]}', b'["\xed\xa0\x80"]'),
        (b'{"value": "/w==", "value_encoding": "base64"}', b"\xff"),
    ],
)
def test_any_json_value_can_be_sent(line: bytes, value: bytes | None) -> None:
    assert parse_json(line).value == value


@pytest.mark.parametrize("number", [b"3.14159265358979323846", b"1.10", b"1e400", b"-0", b"1E+2", b"7" * 5000])
def test_a_number_is_sent_as_it_was_typed(number: bytes) -> None:
    assert parse_json(b'{"value": ' + number + b"}").value == number
    nested = b'{"key": {"n": [%b]}, "headers": {"h": [%b]}, "value": [{"price": %b}, "%b"]}'
    record = parse_json(nested % (number, number, number, number))
    assert record.key == b'{"n":[%b]}' % number
    assert record.headers == (("h", b"[%b]" % number),)
    assert record.value == b'[{"price":%b},"%b"]' % (number, number)


@pytest.mark.parametrize(
    "headers",
    [
        b'{"a": "1"}',
        b'[{"key": "a", "value": "1"}]',
        b'[["a", "1"]]',
        b'[{"key": "a", "value": "MQ==", "encoding": "base64"}]',
    ],
)
def test_headers_may_be_written_in_several_ways(headers: bytes) -> None:
    assert parse_json(b'{"headers": ' + headers + b"}").headers == (("a", b"1"),)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{", "not JSON"),
        (b"[1]", "object"),
        (b'{"vlaue": 1}', "vlaue"),
        (b'{"partition": "1"}', "partition"),
        (b'{"partition": true}', "partition"),
        (b'{"timestamp": 1.5}', "timestamp"),
        (b'{"value": "?", "value_encoding": "base64"}', "base64"),
        (b'{"value": "x", "value_encoding": "rot13"}', "rot13"),
        (b'{"timestamp": 9223372036854775808}', "timestamp"),
        (b'{"timestamp": -5}', "timestamp"),
        (b'{"headers": {"\\ud800": "x"}}', "header"),
        (b'{"headers": [{"key": "\\ud800"}]}', "header"),
        (b'{"headers": [["\\ud800", "x"]]}', "header"),
        (b'{"headers": 5}', "headers"),
        (b'{"headers": [5]}', "header"),
        (b"\xff", "not JSON"),
        (b'{"value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deep"),
        (b'{"value": NaN}', "number"),
        (b'{"value": {"price": Infinity}}', "number"),
        (b'{"partition": 123456789012345678901}', "partition"),
        (b'{"headers": [[1, "x"]]}', "header"),
        (b'{"headers": [{"key": 1}]}', "header"),
    ],
)
def test_a_wrong_json_line_says_what_is_wrong(line: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        parse_json(line)
