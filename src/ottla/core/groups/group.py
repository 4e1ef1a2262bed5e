"""What every kind of group can be asked, whatever its members speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, Protocol, TypeAlias

from ottla.core.groups.records import GroupRecord

GroupKind: TypeAlias = Literal["classic", "consumer"]

FROM_COMMIT: Final = -1
"""Said by `offsets_expire_from`: each offset counts as unused from its own commit on."""


class Group(Protocol):
    """A group of a shard. The checks raise ApiError, and none of them changes anything."""

    group_id: str

    @property
    def kind(self) -> GroupKind:
        """Which protocol the group as a whole follows."""

    @property
    def state_name(self) -> str:
        """Kafka's name of the state that the group is in, e.g. PreparingRebalance."""

    @property
    def members(self) -> Mapping[str, object]:
        """Those who are in it, by id."""

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it: it may be deleted, or become a group of the other kind."""

    @property
    def protocol_type(self) -> str:
        """What the members use the group for, e.g. consumer; empty where nobody has said."""

    def check_offset_commit(
        self, member_id: str, group_instance_id: str | None, epoch: int, *, transactional: bool, version: int
    ) -> None:
        """Whether this member may commit offsets now. `epoch` is a generation or a member epoch."""

    def heard_from(self, member_id: str, now_ms: int) -> None:
        """This member has committed offsets. It keeps the session of a member alive that speaks the classic protocol,
        where the group is stable or members are rejoining; otherwise, and for anybody else, it does nothing."""

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whether this member may read offsets."""

    def check_offset_delete(self) -> None:
        """Whether offsets may be deleted at all: NON_EMPTY_GROUP where it cannot be seen which are in use."""

    def check_delete(self) -> None:
        """NON_EMPTY_GROUP while the group has members."""

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic, or might."""

    def offsets_expire_from(self) -> int | None:
        """Since when the offsets of topics that nobody is subscribed to count as unused: a time, FROM_COMMIT, or None
        while no offset of this group may expire. An offset with a time of expiry of its own follows that one, but
        does not expire either where this is None."""

    def tombstones(self) -> list[GroupRecord]:
        """What makes the group gone, its offsets apart."""
