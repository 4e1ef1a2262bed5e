"""Offsets that nobody needs any more are forgotten, and so are groups that have neither offsets nor members.

An offset expires `offsets.retention.minutes` after its commit, or after the group became empty, unless a member is
subscribed to its topic or a transaction is about to replace it. What an old client wanted kept for a time of its own
expires by that time.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from ottla.core.coordination import Outcome
from ottla.core.groups.committed_offset import times
from ottla.core.groups.group import FROM_COMMIT
from ottla.core.groups.offset_store import Sweep
from ottla.core.groups.offset_sweeps import PAUSE, STEP_MAX, start
from ottla.core.groups.records import GroupRecord, OffsetRecord
from ottla.core.groups.table import GroupState, TimerKey
from ottla.model.ids import NO_OFFSET, NO_TIMESTAMP

CHECK: Final[TimerKey] = ("offset_expiry",)
MINUTE_MS: Final = 60_000


def schedule(state: GroupState, now_ms: int) -> None:
    """Look for expired offsets when the interval has passed."""
    state.timers.set(CHECK, now_ms + state.config().offsets_retention_check_interval_ms)


def check(state: GroupState, _key: TimerKey, now_ms: int) -> Outcome[GroupRecord]:
    """Look for expired offsets now."""
    start(state, expired(state, now_ms), now_ms)
    schedule(state, now_ms)
    return Outcome()


def expired(state: GroupState, now_ms: int) -> Sweep:
    """The tombstones of what has expired by now, then those of groups that are left with nothing."""
    retention_ms = state.config().offsets_retention_minutes * MINUTE_MS
    group_ids = list(state.groups)
    for group_id in group_ids:
        looked = 1
        for topic in list(state.offsets.topics(group_id)):
            partitions = iter(list(state.offsets.topics(group_id).get(topic, ())))
            while chunk := list(islice(partitions, STEP_MAX)):
                yield looked + len(chunk), _expired_of(state, group_id, topic, chunk, now_ms, retention_ms)
                looked = 0
        if looked:
            yield looked, []
    yield PAUSE
    for group_id in group_ids:
        yield 1, _without_anything(state, group_id)


def _expired_of(
    state: GroupState, group_id: str, topic: str, partitions: list[int], now_ms: int, retention_ms: int
) -> list[GroupRecord]:
    group = state.groups.get(group_id)
    since_ms = None if group is None else group.offsets_expire_from()
    if group is None or since_ms is None or group.is_subscribed_to(topic):
        return []
    committed = state.offsets.topics(group_id).get(topic, {})
    held = state.offsets.unstable(group_id).get(topic, ())
    tombstones: list[GroupRecord] = []
    for partition in partitions:
        packed = committed.get(partition)
        if packed is None or partition in held:
            continue
        commit_timestamp, expire_timestamp = times(packed)
        if expire_timestamp == NO_TIMESTAMP:
            expire_timestamp = (commit_timestamp if since_ms == FROM_COMMIT else since_ms) + retention_ms
        if now_ms >= expire_timestamp:
            tombstones.append(OffsetRecord(group_id, topic, partition, NO_OFFSET))
    return tombstones


def _without_anything(state: GroupState, group_id: str) -> list[GroupRecord]:
    group = state.groups.get(group_id)
    if group is None or not group.is_empty or state.offsets.has_any(group_id):
        return []
    return group.tombstones()
