"""The world's clocks: what waits by them must not be hurried by an administrator who sets the time."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.model.ids import uuid_to_base64
from ottla.runtime.world import SteadyClock, random_uuid


class SetClock:
    """A clock whose hands can be moved."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.passed_s = 5.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.passed_s


def test_a_steady_clock_starts_with_the_time_and_goes_on_by_itself() -> None:
    clock = SetClock()
    steady = SteadyClock(clock)
    assert steady.now_ms() == 1_700_000_000_000
    clock.passed_s += 1.5
    assert steady.now_ms() == 1_700_000_001_500


def test_setting_the_time_moves_no_deadline() -> None:
    clock = SetClock()
    steady = SteadyClock(clock)
    clock.wall_ms += 86_400_000
    assert steady.now_ms() == 1_700_000_000_000
    clock.wall_ms -= 2 * 86_400_000
    clock.passed_s += 0.25
    assert steady.now_ms() == 1_700_000_000_250


def test_an_id_never_begins_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command would take it for an option."""
    chance = iter([*(UUID(bytes=bytes([first]) + bytes(15)) for first in range(0xF8, 0xFD))])
    monkeypatch.setattr("uuid.uuid4", lambda: next(chance))
    assert uuid_to_base64(random_uuid()).startswith("_")
    assert list(chance) == []
