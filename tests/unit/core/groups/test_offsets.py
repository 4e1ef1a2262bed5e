"""Which commands, records and timers belong to offsets."""

from __future__ import annotations

from ottla.core.coordination import Command
from ottla.core.groups import offset_commands, offsets
from ottla.core.groups.offset_expiry import CHECK
from ottla.core.groups.offset_sweeps import SWEEP
from ottla.core.groups.records import OffsetRecord
from tests.unit.core.groups.offset_coordinator import START_MS, OffsetCoordinator


def test_every_command_has_a_decision() -> None:
    named = [value for value in vars(offset_commands).values() if isinstance(value, type)]
    assert set(offsets.DECISIONS) == {value for value in named if issubclass(value, Command)} - {Command}


def test_records_and_timers() -> None:
    assert set(offsets.REPLAYS) == {OffsetRecord}
    assert set(offsets.DUE) == {CHECK[0], SWEEP[0]}


def test_a_loaded_shard_looks_for_old_offsets() -> None:
    c = OffsetCoordinator({"offsets.retention.check.interval.ms": "5000"})
    assert c.state.timers.next_deadline_ms() == START_MS + 5000
