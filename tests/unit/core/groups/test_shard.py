"""The shard as such: one timer with records a tick, and the parts together."""

from __future__ import annotations

from ottla.core.controller.image import ImageDelta
from ottla.core.groups.classic_commands import LeaveGroup, LeavingMember
from ottla.core.groups.records import ClassicGroupRecord
from ottla.core.groups.shard import DECISIONS, DUE, REPLAYS
from tests.unit.core.groups.coordinator import SESSION_MS, Coordinator, join


def test_what_is_written_in_one_tick_is_of_one_timer() -> None:
    c = Coordinator()
    for group_id in "abc":
        c.join_later(group_id=group_id, group_instance_id="i")
    c.pass_ms(0)
    c.now_ms += 10 * SESSION_MS
    written = []
    while (deadline_ms := c.shard.next_deadline_ms()) is not None and deadline_ms <= c.now_ms:
        outcome = c.shard.tick(c.now_ms)
        written.append(len(outcome.records))
        for record in outcome.records:
            c.shard.replay(record, -1)
    assert sorted(written, reverse=True)[:3] == [1, 1, 1]


def test_answers_of_timers_before_one_with_records_are_kept() -> None:
    c = Coordinator(delay_ms=3000)
    waiting = c.join_later(group_id="a", group_instance_id="i")
    c.now_ms += 1
    c.join_later(group_id="b", group_instance_id="i")
    c.send(LeaveGroup(group_id="b", members=(LeavingMember("", "i"),)))
    outcome = c.shard.tick(c.now_ms + 3000)
    assert [record.group_id for record in outcome.records] == ["b"]
    assert [ticket for ticket, _answer in outcome.answers] == [waiting]


def test_metadata_that_changes_nothing_writes_nothing() -> None:
    c = Coordinator()
    c.stable(1)
    assert not c.shard.metadata_changed(ImageDelta(), c.now_ms).records


def test_the_tables_have_what_classic_groups_need() -> None:
    assert type(join()) in DECISIONS
    assert ClassicGroupRecord in REPLAYS
    assert {"classic.session", "classic.join", "classic.sync"} <= DUE.keys()
