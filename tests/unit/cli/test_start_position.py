"""`--from` must start where the user meant."""

from __future__ import annotations

from datetime import datetime

import pytest

from ottla.cli.failures import UsageError
from ottla.cli.start_position import Edge, FromEnd, FromOffset, Start, parse_start
from ottla.client.consumer import AtTime
from ottla.client.offsets import EARLIEST, LATEST

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Edge(EARLIEST)),
        ("earliest", Edge(EARLIEST)),
        ("end", Edge(LATEST)),
        ("0", FromOffset(0)),
        ("1700000000000", FromOffset(1_700_000_000_000)),
        ("-5", FromEnd(5)),
        ("@1700000000000", AtTime(1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", AtTime(1_700_000_000_000)),
        ("2023-11-14T23:13:20.5+01:00", AtTime(1_700_000_000_500)),
        ("15m", AtTime(NOW_MS - 900_000)),
        ("2h", AtTime(NOW_MS - 7_200_000)),
        ("99999999d", AtTime(0)),
        ("0001-01-01", AtTime(0)),
    ],
)
def test_a_start_is_read(text: str, start: Start) -> None:
    assert parse_start(text, NOW_MS) == start


def test_a_time_without_a_zone_is_the_users_own() -> None:
    local = datetime(2026, 1, 31, 12, 0).astimezone()
    assert parse_start("2026-01-31T12:00", NOW_MS) == AtTime(int(local.timestamp() * 1000))
    assert isinstance(parse_start("2026-01-31", NOW_MS), AtTime)


@pytest.mark.parametrize("text", ["", "yesterday", "--5", "@", "1.5", "5y", str(2**63), "9" * 400])
def test_a_start_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--from"):
        parse_start(text, NOW_MS)
