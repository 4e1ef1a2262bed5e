"""Offsets that nobody needs any more, and groups that have nothing left."""

from __future__ import annotations

import pytest

from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.group import FROM_COMMIT
from ottla.core.groups.offset_commands import DeleteOffsets, TopicPartitions
from ottla.core.groups.offset_expiry import CHECK
from ottla.core.groups.records import ClassicGroupRecord
from tests.unit.core.groups.offset_coordinator import REPLAYS, START_MS, OffsetCoordinator

MINUTE_MS = 60_000
CONFIGS = {"offsets.retention.minutes": "10", "offsets.retention.check.interval.ms": "60000"}


@pytest.fixture
def c() -> OffsetCoordinator:
    return OffsetCoordinator(CONFIGS)


class InUse(ClassicGroup):
    """A group with members."""

    def __init__(self, since_ms: int | None = FROM_COMMIT, topics: tuple[str, ...] = ()) -> None:
        super().__init__("g")
        self.since_ms = since_ms
        self.topics = topics

    @property
    def is_empty(self) -> bool:
        return False

    def offsets_expire_from(self) -> int | None:
        return self.since_ms

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics


def test_offsets_of_a_simple_consumer_expire_after_their_commit_and_their_group_with_them(
    c: OffsetCoordinator,
) -> None:
    c.commit(5)
    c.pass_ms(5 * MINUTE_MS)
    c.commit(6, partition=1)
    c.pass_ms(5 * MINUTE_MS - 1000)
    assert c.fetch().offset == 5
    c.pass_ms(MINUTE_MS)
    assert (c.fetch().offset, c.fetch(partition=1).offset) == (-1, 6)
    assert "g" in c.state.groups
    c.pass_ms(5 * MINUTE_MS)
    assert c.fetch(partition=1).offset == -1
    assert "g" not in c.state.groups
    assert c.log[-1] == (ClassicGroupRecord(group_id="g", gone=True), -1)


def test_offsets_are_looked_at_once_in_an_interval(c: OffsetCoordinator) -> None:
    assert c.state.timers.next_deadline_ms() == START_MS + MINUTE_MS
    c.pass_ms(MINUTE_MS)
    assert c.state.timers.next_deadline_ms() == START_MS + 2 * MINUTE_MS
    assert CHECK in c.state.timers


def test_offsets_of_a_group_that_became_empty_expire_from_then_on(c: OffsetCoordinator) -> None:
    c.commit(5)
    left_ms = START_MS + 30 * MINUTE_MS
    record = ClassicGroupRecord(group_id="g", protocol_type="consumer", current_state_timestamp=left_ms)
    REPLAYS[ClassicGroupRecord](c.state, record, -1)
    c.pass_ms(39 * MINUTE_MS)
    assert c.fetch().offset == 5
    c.pass_ms(MINUTE_MS)
    assert c.fetch().offset == -1


def test_a_time_of_expiry_of_its_own_counts(c: OffsetCoordinator) -> None:
    c.commit(5, retention_time_ms=2 * MINUTE_MS, version=2)
    c.commit(6, partition=1, retention_time_ms=20 * MINUTE_MS, version=2)
    c.pass_ms(2 * MINUTE_MS)
    assert (c.fetch().offset, c.fetch(partition=1).offset) == (-1, 6)
    c.pass_ms(10 * MINUTE_MS)
    assert c.fetch(partition=1).offset == 6
    c.pass_ms(8 * MINUTE_MS)
    assert c.fetch(partition=1).offset == -1


def test_subscribed_topics_and_groups_in_use_keep_their_offsets(c: OffsetCoordinator) -> None:
    c.commit(5)
    c.commit(6, topic="u")
    c.commit(7, group_id="h")
    c.state.groups["g"] = InUse(topics=("t",))
    c.state.groups["h"] = InUse(None)
    c.pass_ms(20 * MINUTE_MS)
    assert (c.fetch().offset, c.fetch(topic="u").offset, c.fetch(group_id="h").offset) == (5, -1, 7)
    c.state.groups["h"] = InUse()
    c.pass_ms(20 * MINUTE_MS)
    assert c.fetch(group_id="h").offset == -1
    assert "h" in c.state.groups


def test_an_open_transaction_keeps_the_offset_and_the_group(c: OffsetCoordinator) -> None:
    c.commit(5)
    c.commit_in(9, 6)
    c.commit_in(9, 6, partition=1)
    c.pass_ms(20 * MINUTE_MS)
    assert c.fetch().offset == 5
    c.end(9, committed=False)
    c.pass_ms(2 * MINUTE_MS)
    assert c.fetch().offset == -1
    assert "g" not in c.state.groups


def test_a_group_that_lost_its_offsets_otherwise_goes_with_the_next_look(c: OffsetCoordinator) -> None:
    c.commit(5)
    c.ask(DeleteOffsets(group_id="g", topics=[TopicPartitions("t", [0])]))
    assert "g" in c.state.groups
    c.pass_ms(MINUTE_MS)
    assert "g" not in c.state.groups


def test_a_commit_while_offsets_expire_saves_the_offset_and_the_group(c: OffsetCoordinator) -> None:
    for group in range(3):
        for partition in range(300):
            c.commit(5, group_id=f"g{group}", partition=partition)
    c.now_ms += 20 * MINUTE_MS
    assert c.tick() == []
    c.tick()
    c.commit(7, group_id="g2", partition=0)
    c.commit(7, group_id="g0", partition=0)
    c.pass_ms(0)
    assert set(c.state.groups) == {"g0", "g2"}
    assert c.state.offsets.count == 2
