"""The commit that a consumer sends again and again: all of it is the same but the offset, its leader epoch, the time.

What was looked up for the first one is kept here, so that the next one needs no command, no record and no outcome, only
what they would come to: whether it may be, and what it changes once it is in the log.

What an editor must keep true:
- `decide` accepts and refuses what `commit_offsets` would, and changes nothing that is recorded.
- `replay` does what replaying the OffsetRecord would do: an offset with the topic's id, without metadata or expiry.
"""

from __future__ import annotations

from ottla.core.groups.committed_offset import pack_plain
from ottla.core.groups.offset_commands import CommitOffsets, NewOffset
from ottla.core.groups.table import GroupState


class RepeatedCommit:
    """What `command` asks, with the one offset of it replaced each time."""

    __slots__ = (
        "_epoch",
        "_group_id",
        "_groups",
        "_instance_id",
        "_member_id",
        "_number",
        "_partition",
        "_place",
        "_store",
        "_topic",
        "_unstable_groups",
        "_version",
    )

    def __init__(self, state: GroupState, command: CommitOffsets, offset: NewOffset) -> None:
        self._groups = state.groups
        self._store = state.offsets
        self._group_id = command.group_id
        self._member_id = command.member_id
        self._instance_id = command.group_instance_id
        self._epoch = command.generation_id_or_member_epoch
        self._version = command.version
        self._topic = offset.topic
        self._partition = offset.partition
        self._number = state.offsets.packed.number_of(offset.topic_id)
        self._unstable_groups = state.offsets.unstable_groups
        self._place: dict[int, bytes] = {}
        """Where the offset was put, in the store. Without it, it was removed, and the place with it."""

    def decide(self, now_ms: int) -> bool:
        """Whether an offset may be committed now; False if only `commit_offsets` can say. ApiError: refused."""
        group = self._groups.get(self._group_id)
        if group is None:
            return False
        member_id = self._member_id
        group.check_offset_commit(member_id, self._instance_id, self._epoch, transactional=False, version=self._version)
        if member_id:
            group.heard_from(member_id, now_ms)
        return True

    def replay(self, offset: int, leader_epoch: int, now_ms: int) -> None:
        """The offset is in the log. Its group is there: `decide` has just seen it."""
        place, partition = self._place, self._partition
        packed = pack_plain(offset, leader_epoch, now_ms, self._number)
        if partition in place and not self._unstable_groups:
            place[partition] = packed
        else:
            self._store.replay_packed(self._group_id, self._topic, partition, packed)
            self._place = self._store.place(self._group_id, self._topic) or {}
