"""A table of records shows where each of them is, on any terminal."""

from __future__ import annotations

import pytest

from ottla.cli.record_table import RecordTable
from ottla.client.consumer import ConsumedRecord


@pytest.mark.parametrize("columns", ["20", "40", "80", "200"])
def test_where_a_record_is_fits_any_terminal(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    table = RecordTable(keys=True, headers=True)
    table.write([ConsumedRecord("orders", 17, 1_234_567_890, 1_700_000_000_000, False, b"k", b"v", ())])
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["part.", "offset", "time", "key", "headers", "value"]
    assert row.split() == ["17", "1234567890", "2023-11-14", "22:13:20.000Z", "k", "v"]


def test_a_large_offset_is_shown_whole(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    table = RecordTable(keys=False, headers=False)
    table.write([ConsumedRecord("orders", 0, 98_765_432_109, 0, False, None, b"v", ())])
    assert "".join(line[7:17].strip() for line in capsys.readouterr().out.splitlines()[1:]) == "98765432109"
