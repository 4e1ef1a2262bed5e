"""What the state machines of one shard share: its groups, their offsets, and the deadlines of both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from ottla.core.controller.image import MetadataImage
from ottla.core.groups.group import Group
from ottla.core.groups.regex import PatternMatches
from ottla.core.timers import Timers
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.core.groups.offsets import OffsetStore

TimerKey: TypeAlias = tuple[str, ...]
"""The name of what is due (a key of a DUE table), then whom it is about."""


class GroupState:
    """The state of one shard. `groups` is changed by replay, but for groups that have no record yet."""

    __slots__ = (
        "config",
        "consumer_members",
        "groups",
        "image",
        "is_loaded",
        "new_uuid",
        "offsets",
        "patterns",
        "timers",
    )

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
        new_uuid: Callable[[], UUID],
        offsets: OffsetStore,
    ) -> None:
        self.groups: dict[str, Group] = {}
        self.offsets = offsets
        self.timers: Timers[TimerKey] = Timers()
        self.config = config
        self.image = image
        self.new_uuid = new_uuid
        self.patterns = PatternMatches()
        self.consumer_members = 0
        """Members of consumer groups that send heartbeats of the consumer protocol; they share the shard's time."""
        self.is_loaded = False
        """False while the log is replayed: no timer runs, and nobody waits."""

    def group(self, group_id: str) -> Group:
        """The group, or GROUP_ID_NOT_FOUND."""
        group = self.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        return group
