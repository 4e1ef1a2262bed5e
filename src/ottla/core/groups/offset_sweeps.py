"""Work that looks at all offsets of a shard, in slices that do not hold up anybody.

Theory of operation. A sweep is an iterator. Each of its steps looks at a few offsets and says how many, and which
records it wants written. A timer runs the oldest sweep for a slice at a time, with pauses for whoever waits.

What an editor of a sweep must keep true:
- Between two steps anything may change: a step looks again at what it is to work on, and relies on copies of keys only.
- What steps return is replayed at the end of the slice. `PAUSE` ends a slice early, for a step that must see it.
"""

from __future__ import annotations

from typing import Final

from ottla.core.coordination import Outcome
from ottla.core.groups.offset_store import Sweep
from ottla.core.groups.records import GroupRecord
from ottla.core.groups.table import GroupState, TimerKey

SLICE_LOOKS_MAX: Final = 2000
SLICE_RECORDS_MAX: Final = 400
"""A record costs more than a look: it is encoded, appended and replayed."""
SLICE_PAUSE_MS: Final = 10

STEP_MAX: Final = 200
"""The most things that a step should look at, and records that it should want."""

PAUSE: Final[tuple[int, list[GroupRecord]]] = (SLICE_LOOKS_MAX, [])

SWEEP: Final[TimerKey] = ("offset_sweep",)


def start(state: GroupState, sweep: Sweep, now_ms: int) -> None:
    """Have this done after what is under way."""
    state.offsets.sweeps.append(sweep)
    if SWEEP not in state.timers:
        state.timers.set(SWEEP, now_ms)


def run_slice(state: GroupState, _key: TimerKey, now_ms: int) -> Outcome[GroupRecord]:
    """Go on with the oldest sweep."""
    sweeps = state.offsets.sweeps
    outcome: Outcome[GroupRecord] = Outcome()
    looks = 0
    while sweeps and looks < SLICE_LOOKS_MAX and len(outcome.records) < SLICE_RECORDS_MAX:
        step = next(sweeps[0], None)
        if step is None:
            sweeps.popleft()
            break
        looks += step[0]
        outcome.records += step[1]
    if sweeps:
        state.timers.set(SWEEP, now_ms + SLICE_PAUSE_MS)
    return outcome
