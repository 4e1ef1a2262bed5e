"""One group coordinator: everything about the groups of one partition of `__consumer_offsets`.

Theory of operation. The shard itself knows no group. Each part of `core/groups` exports tables: `DECISIONS` (a type of
command to the function that decides it), `REPLAYS` (a type of record to the function that applies it) and `DUE` (the
first item of a timer's key to the function that acts on it); some have `CHECKS`, what is refused also where the group
is not. Parts share a `GroupState` and nothing else.

What an editor must keep true:
- A tick gives the outcome of at most one timer that has something to write, so that what is written together belongs
  together; `next_deadline_ms` says that there is more. A tick looks at TICK_TIMERS_MAX timers at most.
- A command, a record or a timer belongs to one part; two parts that claim one are found at import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias
from uuid import UUID

from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.core.coordination import Checks, Command, Outcome, Ticket
from ottla.core.groups import classic, consumer, listing, offsets
from ottla.core.groups.records import GroupRecord
from ottla.core.groups.table import GroupState, TimerKey
from ottla.model.configs.resolve import BrokerConfig

TICK_TIMERS_MAX: Final = 256

Decision: TypeAlias = Callable[[GroupState, Any, Ticket, int], Outcome[GroupRecord]]
Replay: TypeAlias = Callable[[GroupState, Any, int], None]
Due: TypeAlias = Callable[[GroupState, TimerKey, int], Outcome[GroupRecord]]


def _merged(*tables: Mapping[Any, Any]) -> dict[Any, Any]:
    """One table out of those of all parts."""
    merged: dict[Any, Any] = {}
    for table in tables:
        if twice := merged.keys() & table.keys():
            raise TypeError(f"two parts of the group coordinator claim {twice}")
        merged |= table
    return merged


DECISIONS: Final[Mapping[type[Command[Any]], Decision]] = _merged(
    classic.DECISIONS, consumer.DECISIONS, listing.DECISIONS, offsets.DECISIONS
)
CHECKS: Final[Checks] = _merged(classic.CHECKS, consumer.CHECKS)
REPLAYS: Final[Mapping[type[Any], Replay]] = _merged(classic.REPLAYS, consumer.REPLAYS, offsets.REPLAYS)
DUE: Final[Mapping[str, Due]] = _merged(classic.DUE, consumer.DUE, offsets.DUE)


class GroupShard:
    """The state machine of one partition. Implements `Shard[GroupRecord]`."""

    __slots__ = ("next_deadline_ms", "state")

    next_deadline_ms: Callable[[], int | None]

    def __init__(
        self, config: Callable[[], BrokerConfig], image: Callable[[], MetadataImage], new_uuid: Callable[[], UUID]
    ) -> None:
        self.state = GroupState(config, image, new_uuid, offsets.OffsetStore())
        self.next_deadline_ms = self.state.timers.next_deadline_ms

    def decide(self, command: Command[Any], ticket: Ticket, now_ms: int) -> Outcome[GroupRecord]:
        return DECISIONS[type(command)](self.state, command, ticket, now_ms)

    def tick(self, now_ms: int) -> Outcome[GroupRecord]:
        """What is due by now. Nothing that was decided in an earlier step is waited for, so this may be called at any
        time; without anything to write the outcomes of many timers go together."""
        timers = self.state.timers
        together: Outcome[GroupRecord] = Outcome()
        for _ in range(TICK_TIMERS_MAX):
            key = timers.pop_due(now_ms)
            if key is None:
                break
            outcome = DUE[key[0]](self.state, key, now_ms)
            if outcome.records:
                outcome.answers[:0] = together.answers
                return outcome
            together.add(outcome)
        return together

    def replay(self, record: GroupRecord, producer_id: int) -> None:
        REPLAYS[type(record)](self.state, record, producer_id)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        offsets.replay_marker(self.state, producer_id, committed=committed)

    def loaded(self, now_ms: int) -> Outcome[GroupRecord]:
        """From now on timers run."""
        self.state.is_loaded = True
        outcome = classic.loaded(self.state, now_ms)
        outcome.add(consumer.loaded(self.state, now_ms))
        outcome.add(offsets.loaded(self.state, now_ms))
        return outcome

    def metadata_changed(self, delta: ImageDelta, _now_ms: int = 0) -> Outcome[GroupRecord]:
        """Topics, partitions or the configs of groups are others now. The image has them already. What takes longer is
        left to timers that are due at once."""
        outcome = consumer.metadata_changed(self.state, delta)
        outcome.add(offsets.metadata_changed(self.state, delta))
        return outcome
