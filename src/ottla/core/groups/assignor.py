"""What assignors are given and what they give: pure functions from members and topics to shares.

Every assignor keeps this: each partition of a subscribed topic goes to exactly one member that is subscribed to it, and
members keep what they have where that does not cost balance. Racks are not looked at. Results depend on the arguments
only, and on ids rather than on the order of members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.core.groups.partition_map import PartitionMap


class AssignedMember(NamedTuple):
    """A member as an assignor sees it."""

    order: str
    """What members are sorted by: the instance id of a static member, so that it keeps its place, else the id."""
    topics: frozenset[UUID]
    """Subscribed topics that exist."""
    has: PartitionMap
    """What the previous target gave it, topics and partitions included that are gone."""


Members: TypeAlias = Mapping[str, AssignedMember]
PartitionCounts: TypeAlias = Mapping[UUID, int]
Shares: TypeAlias = dict[str, dict[UUID, set[int]]]
"""By member id. A member without partitions may be missing."""
Assignor: TypeAlias = Callable[[Members, PartitionCounts], Shares]


def in_order(members: Members) -> list[str]:
    """The ids of members, sorted as assignors go through them."""
    return sorted(members, key=lambda member_id: (members[member_id].order, member_id))
