"""Results that tools read must not change with who looks at them."""

from __future__ import annotations

import json

import pytest

from ottla.cli.failures import UsageError
from ottla.cli.options import Output, parse_pairs
from ottla.cli.output import size_text, write_pairs, write_rows

ROWS = [{"topic": "a", "parts": 3, "isr": [1, 2]}, {"topic": "b", "parts": 1, "isr": []}]


def test_plain_rows_are_separated_by_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(ROWS, ("topic", "parts", "isr"), Output.PLAIN)
    assert capsys.readouterr().out == "a\t3\t1,2\nb\t1\t\n"


def test_json_rows_keep_their_types(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(ROWS, ("topic",), Output.JSON)
    assert json.loads(capsys.readouterr().out) == ROWS


def test_a_table_shows_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows([{"name": "[bold]not markup[/bold]", "on": True}], ("name", "on"), Output.TABLE)
    shown = capsys.readouterr().out
    assert "[bold]not markup[/bold]" in shown
    assert "yes" in shown


def test_a_narrow_terminal_cuts_up_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    columns = ("partition", "leader", "replicas", "isr", "start", "end", "records", "path")
    row = {"partition": 1, "leader": 3, "replicas": [1, 2], "start": 1_234_567, "end": 7_654_321, "records": 6_419_754}
    write_rows([row | {"isr": [1], "path": "/var/lib/" + "x" * 40}], columns, Output.TABLE)
    shown = capsys.readouterr().out
    assert {*columns, "1234567", "7654321", "6419754"} <= set(shown.split())
    assert "x" * 40 not in shown


def test_pairs_are_written_in_each_manner(capsys: pytest.CaptureFixture[str]) -> None:
    write_pairs({"id": "x", "rack": None}, Output.PLAIN)
    assert capsys.readouterr().out == "id\tx\nrack\t\n"
    write_pairs({"id": "x", "rack": None}, Output.JSON)
    assert json.loads(capsys.readouterr().out) == {"id": "x", "rack": None}


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (150_000, "150 kB"), (2_000_000_000, "2.0 GB"), (-1, "?")],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert size_text(size) == text


def test_pairs_on_the_command_line_are_read_up_to_the_first_equals_sign() -> None:
    assert parse_pairs(["a=b=c", " d = e "], "--config") == {"a": "b=c", "d": "e"}
    assert parse_pairs(None, "--config") == {}
    with pytest.raises(UsageError, match="nonsense"):
        parse_pairs(["nonsense"], "--config")
