"""A decision about a consumer group that is being made: the records so far, and the group as they leave it.

The group itself changes when its records are replayed and not before. A draft applies each record that is written to a
copy of the group, made with the first record, so that the next step of the same decision sees it.
"""

from __future__ import annotations

from typing import Any

from ottla.core.coordination import Outcome, Ticket
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.group_settings import GroupSettings, settings_of
from ottla.core.groups.records import GroupRecord
from ottla.core.groups.table import GroupState


class Draft:
    """`origin` is the group as it is recorded, None where there is none yet; `group` is what this decision sees."""

    __slots__ = ("converted", "group", "now_ms", "origin", "outcome", "state")

    def __init__(self, state: GroupState, origin: ConsumerGroup | str, now_ms: int) -> None:
        self.state = state
        self.now_ms = now_ms
        self.converted: ClassicGroup | None = None
        """The classic group that this one takes the place of, if it has members."""
        self.outcome: Outcome[GroupRecord] = Outcome()
        if isinstance(origin, str):
            self.origin: ConsumerGroup | None = None
            self.group = ConsumerGroup(origin)
        else:
            self.origin = self.group = origin

    def write(self, record: GroupRecord) -> None:
        """Let the record be written, and count from now on in this decision."""
        if self.group is self.origin:
            self.group = self.origin.copy()
        self.outcome.records.append(record)
        self.group.apply(record)

    def answer(self, ticket: Ticket, answer: Any) -> Outcome[GroupRecord]:
        self.outcome.answer(ticket, answer)
        return self.outcome

    def settings(self) -> GroupSettings:
        return current_settings(self.state, self.group if self.origin is None else self.origin)


def current_settings(state: GroupState, group: ConsumerGroup) -> GroupSettings:
    """What the configs come to for a group; kept with it until they change."""
    settings = group.settings
    config = state.config()
    if settings is None or settings.config is not config:
        settings = group.settings = settings_of(group.group_id, state.image(), config)
    return settings
