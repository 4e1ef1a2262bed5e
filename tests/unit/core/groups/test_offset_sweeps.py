"""Work in slices."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.core.groups import offset_sweeps
from ottla.core.groups.offset_store import Sweep
from ottla.core.groups.offset_sweeps import PAUSE, SLICE_LOOKS_MAX, SLICE_PAUSE_MS, SLICE_RECORDS_MAX, STEP_MAX, SWEEP
from ottla.core.groups.records import GroupRecord, OffsetRecord
from tests.unit.core.groups.offset_coordinator import START_MS, OffsetCoordinator

TOMBSTONE: GroupRecord = OffsetRecord("g", "t", 0, -1)


def steps(*wanted: tuple[int, list[GroupRecord]]) -> Sweep:
    return iter(wanted)


def test_a_slice_looks_at_so_much_and_no_more() -> None:
    c = OffsetCoordinator()
    done = []

    def endless() -> Iterator[tuple[int, list[GroupRecord]]]:
        while True:
            done.append(1)
            yield STEP_MAX, []

    offset_sweeps.start(c.state, endless(), c.now_ms)
    c.tick()
    assert len(done) == SLICE_LOOKS_MAX // STEP_MAX
    assert c.state.timers.next_deadline_ms() == START_MS + SLICE_PAUSE_MS


def test_a_slice_wants_so_many_records_and_no_more() -> None:
    c = OffsetCoordinator()
    offset_sweeps.start(c.state, steps(*[(1, [TOMBSTONE] * STEP_MAX)] * 10), c.now_ms)
    assert len(c.tick()) == SLICE_RECORDS_MAX


def test_a_pause_ends_a_slice() -> None:
    c = OffsetCoordinator()
    offset_sweeps.start(c.state, steps((1, [TOMBSTONE]), PAUSE, (1, [TOMBSTONE])), c.now_ms)
    assert c.tick() == [TOMBSTONE]
    c.now_ms += SLICE_PAUSE_MS
    assert c.tick() == [TOMBSTONE]


def test_sweeps_come_one_after_the_other() -> None:
    c = OffsetCoordinator()
    other = OffsetRecord("g", "t", 1, -1)
    offset_sweeps.start(c.state, steps((1, [TOMBSTONE])), c.now_ms)
    offset_sweeps.start(c.state, steps((1, [other])), c.now_ms)
    assert c.tick() == [TOMBSTONE]
    c.now_ms += SLICE_PAUSE_MS
    assert c.tick() == [other]
    assert not c.state.offsets.sweeps
    assert SWEEP not in c.state.timers
