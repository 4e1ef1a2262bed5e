"""Lengths of time and moments mean what the user meant."""

from __future__ import annotations

import time
from datetime import datetime

import pytest

from ottla.cli.durations import duration_text, parse_duration_ms, parse_moment_ms
from ottla.cli.failures import UsageError


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT12H", 129_600_000),
        ("pt0.25s", 250),
        ("P2D", 172_800_000),
    ],
)
def test_a_duration_is_read(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text, "--x") == duration_ms


@pytest.mark.parametrize("text", ["", "15", "m", "-5m", "P", "PT", "P1H", "1y", "PT1H-1M", "9" * 400 + "d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--x"):
        parse_duration_ms(text, "--x")


def test_a_moment_is_read_in_its_zone_or_the_users_own() -> None:
    assert parse_moment_ms("2023-11-14T23:13:20.5+01:00", "--x") == 1_700_000_000_500
    local = datetime(2026, 1, 31, 12, 0).astimezone()
    assert parse_moment_ms("2026-01-31T12:00", "--x") == int(local.timestamp() * 1000)
    with pytest.raises(UsageError, match="--x"):
        parse_moment_ms("yesterday", "--x")


@pytest.mark.parametrize("text", ["0001-01-01", "0001-01-01T00:00:00+23:00", "1969-12-31T00:00:00Z"])
def test_a_moment_before_1970_is_the_first_there_is(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for zone in ("Pacific/Kiritimati", "America/Los_Angeles"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        assert parse_moment_ms(text, "--x") == 0
        assert parse_moment_ms("9999-12-31T23:59:59", "--x") > 253_402_000_000_000
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("duration_ms", "text"), [(-5, "0ms"), (999, "999ms"), (10_000, "10s"), (90_000, "90s"), (7_200_000, "2h")]
)
def test_a_duration_is_written_in_the_unit_that_suits_it(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
