"""Records of consumer groups, applied. The only place where groups of this kind come, change and go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.consumer_leaving import forget_timers
from ottla.core.groups.records import (
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    CurrentMemberRecord,
    RegularExpressionRecord,
    TargetAssignmentRecord,
    TargetMemberRecord,
)
from ottla.core.groups.table import GroupState

AnyRecord: TypeAlias = (
    ConsumerGroupRecord
    | ConsumerMemberRecord
    | TargetAssignmentRecord
    | TargetMemberRecord
    | CurrentMemberRecord
    | RegularExpressionRecord
)


def _replay(state: GroupState, record: AnyRecord, _producer_id: int) -> None:
    group = state.groups.get(record.group_id)
    if not isinstance(group, ConsumerGroup):
        if record.gone:
            return
        # What was here before is a classic group whose tombstone came first or was compacted away, or one that only
        # stands for committed offsets.
        group = state.groups[record.group_id] = ConsumerGroup(record.group_id)
    before = group.consumer_member_count
    group.apply(record)
    state.consumer_members += group.consumer_member_count - before
    if record.gone and state.is_loaded and isinstance(record, ConsumerMemberRecord):
        forget_timers(state, record.group_id, record.member_id)


def _replay_group(state: GroupState, record: ConsumerGroupRecord, producer_id: int) -> None:
    group = state.groups.get(record.group_id)
    if record.gone and isinstance(group, ConsumerGroup):
        state.consumer_members -= group.consumer_member_count
        for member_id in group.members:
            forget_timers(state, record.group_id, member_id)
        del state.groups[record.group_id]
    else:
        _replay(state, record, producer_id)


REPLAYS: Final[Mapping[type[Any], Callable[[GroupState, Any, int], None]]] = {
    ConsumerGroupRecord: _replay_group,
    ConsumerMemberRecord: _replay,
    TargetAssignmentRecord: _replay,
    TargetMemberRecord: _replay,
    CurrentMemberRecord: _replay,
    RegularExpressionRecord: _replay,
}
