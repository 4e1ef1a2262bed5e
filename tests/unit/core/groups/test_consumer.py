"""Consumer groups as members see them: joining, moving partitions, being settled, topics that change, timeouts."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.core.groups.consumer_commands import DescribeConsumerGroup
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.consumer_member import STABLE, UNRELEASED_PARTITIONS, UNREVOKED_PARTITIONS
from ottla.core.groups.records import GroupRecord, RegularExpressionRecord, TargetAssignmentRecord
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.groups.consumers import REBALANCE_MS, Consumer, Topics, settle

SESSION_MS = 45_000


def owned(*consumers: Consumer) -> list[int]:
    return [len(consumer.owned) for consumer in consumers]


def check_disjoint(consumers: list[Consumer], whole: int) -> None:
    everything = [partition for consumer in consumers for partition in consumer.owned]
    assert len(everything) == len(set(everything)) == whole


def test_the_first_member_gets_everything_at_once() -> None:
    c = Topics(t=6)
    a = c.consumer("a", "t")
    answer = a.join()
    assert (answer.member_id, answer.member_epoch, owned(a)) == ("a", 1, [6])
    assert (c.g.epoch, c.g.assignment_epoch, c.g.state_name) == (1, 1, "Stable")


def test_an_old_client_is_given_an_id() -> None:
    c = Topics(t=1)
    first = c.consumer("", "t").join(version=0)
    second = c.consumer("", "t").join(version=0)
    assert first.member_id
    assert second.member_id
    assert set(c.g.members) == {first.member_id, second.member_id}


def test_a_second_member_waits_until_the_first_has_given_back() -> None:
    c = Topics(t=6)
    a, b = c.consumer("a", "t"), c.consumer("b", "t")
    a.join()
    b.join()
    assert owned(b) == [0]
    c.pass_ms(200)
    assert c.g.assignment_epoch == c.g.epoch == 2
    b.beat()
    assert (c.g.members["b"].state, b.epoch, owned(b)) == (UNRELEASED_PARTITIONS, 2, [0])
    a.beat()
    assert (c.g.members["a"].state, a.epoch, owned(a)) == (UNREVOKED_PARTITIONS, 1, [3])
    b.beat()
    assert owned(b) == [0]
    a.beat()
    assert (c.g.members["a"].state, a.epoch) == (STABLE, 2)
    b.beat()
    assert (c.g.members["b"].state, owned(a, b)) == (STABLE, [3, 3])
    check_disjoint([a, b], 6)
    assert c.g.state_name == "Stable"


def test_a_burst_of_joins_makes_two_assignments() -> None:
    c = Topics(t=100)
    consumers = c.joined_consumers(20, "t")
    assert owned(*consumers) == [5] * 20
    check_disjoint(consumers, 100)
    assert len(c.records(TargetAssignmentRecord)) == 2


def test_a_settled_heartbeat_writes_nothing() -> None:
    c = Topics(t=6)
    a, b = c.joined_consumers(2, "t")
    written = len(c.log)
    c.pass_ms(10_000)
    for _ in range(3):
        assert a.beat().assignment is None
        assert b.beat().assignment is None
    assert len(c.log) == written


def test_a_full_request_is_told_the_assignment_again() -> None:
    c = Topics(t=2)
    a = c.consumer("a", "t")
    a.join()
    written = len(c.log)
    answer = a.send(**a.whole())
    assert answer.assignment is not None
    assert len(c.log) == written


def test_a_leave_gives_everything_to_the_others() -> None:
    c = Topics(t=6)
    a, b, d = c.joined_consumers(3, "t")
    c.pass_ms(5000)
    assert a.leave().member_epoch == -1
    assert "m0" not in c.g.members
    b.beat()
    d.beat()
    assert owned(b, d) == [3, 3]
    assert c.g.state_name == "Stable"
    b.leave()
    d.leave()
    assert c.g.state_name == "Empty"
    assert c.shard.state.consumer_members == 0


def test_a_new_subscription_takes_old_topics_away_before_there_is_a_new_target() -> None:
    c = Topics({"group.consumer.assignment.interval.ms": "10000"}, t=2, u=2)
    a, b = c.joined_consumers(2, "t", "u")
    settle(c, [a, b], rounds=30)
    epoch = c.g.assignment_epoch
    a.send(subscribed_topic_names=("t",))
    assert c.g.epoch == epoch + 1
    assert c.g.assignment_epoch in (epoch, epoch + 1)
    assert {topic_id for topic_id, _ in a.owned} <= {c.image.topics["t"].id}
    settle(c, [a, b], rounds=30)
    check_disjoint([a, b], 4)


def test_topics_that_appear_grow_and_go_rebalance_the_group() -> None:
    c = Topics(t=2)
    a = c.consumer("a", "t", "u")
    a.join()
    assert owned(a) == [2]
    for counts, expected in (({"t": 4}, 4), ({"t": 4, "u": 3}, 7), ({"u": 3}, 3), ({"u": 3, "other": 1}, 3)):
        epoch = c.g.epoch
        c.set_topics(**counts)
        assert c.g.epoch == epoch + ("other" not in counts)
        settle(c, [a])
        assert owned(a) == [expected]


def test_a_topic_that_was_made_anew_is_another_one() -> None:
    c = Topics(t=2)
    a = c.consumer("a", "t")
    a.join()
    before = set(a.owned)
    c.set_topics()
    c.set_topics(t=2)
    settle(c, [a])
    assert owned(a) == [2]
    assert not before & a.owned


def test_patterns_follow_topics() -> None:
    c = Topics(orders=2, users=2)
    a = c.consumer("a", subscribed_topic_regex="orders.*")
    a.join(subscribed_topic_names=None)
    assert owned(a) == [2]
    assert c.g.is_subscribed_to("orders")
    assert not c.g.is_subscribed_to("users")
    c.set_topics(orders=2, users=2, orders_eu=3)
    settle(c, [a])
    assert owned(a) == [5]
    a.send(subscribed_topic_regex="", subscribed_topic_names=("users",))
    settle(c, [a])
    assert {topic_id for topic_id, _ in a.owned} == {c.image.topics["users"].id}
    assert c.records(RegularExpressionRecord)[-1].gone
    assert not c.g.resolved


def test_a_pattern_and_names_come_together() -> None:
    c = Topics(a1=1, a2=1, b=1, z=1)
    both = c.consumer("m", "b", subscribed_topic_regex="a.")
    both.join()
    assert owned(both) == [3]


def test_a_bad_pattern_is_refused_and_changes_nothing() -> None:
    c = Topics(t=1)
    assert (
        c.consumer("a", subscribed_topic_regex="(").code(**c.consumer("a", subscribed_topic_regex="(").whole())
        is ErrorCode.INVALID_REGULAR_EXPRESSION
    )
    assert not c.log
    assert not c.shard.state.groups


@pytest.mark.parametrize(("assignor", "shares"), [("uniform", [3, 3]), ("range", [4, 2])])
def test_members_choose_the_assignor(assignor: str, shares: list[int]) -> None:
    c = Topics(t=3, u=1, v=2)
    a = c.consumer("a", "t", "u", "v", server_assignor=assignor)
    b = c.consumer("b", "t", "u", "v", server_assignor=assignor)
    a.join()
    b.join()
    settle(c, [a, b])
    assert owned(a, b) == shares
    assert c.ask(DescribeConsumerGroup("g")).assignor_name == assignor


def test_a_silent_member_is_removed_and_a_heard_one_is_not() -> None:
    c = Topics(t=4)
    a, b = c.joined_consumers(2, "t")
    for _ in range(4):
        c.pass_ms(SESSION_MS // 3)
        a.beat()
    assert set(c.g.members) == {"m0"}
    a.beat()
    assert owned(a) == [4]
    assert b.code() is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_gives_nothing_back_is_removed_after_its_rebalance_timeout() -> None:
    c = Topics(t=4)
    a, b = c.consumer("a", "t"), c.consumer("b", "t")
    a.join()
    b.join()
    c.pass_ms(200)
    for _ in range(REBALANCE_MS // 5000 + 2):
        b.beat()
        if "a" in c.g.members:
            a.send()
            a.says_owned = False
        c.pass_ms(5000)
    assert set(c.g.members) == {"b"}
    b.beat()
    assert owned(b) == [4]


def test_a_member_that_gives_back_in_time_again_and_again_stays() -> None:
    c = Topics(t=30)
    a = c.consumer("a", "t", rebalance_timeout_ms=20_000)
    a.join()
    others: list[Consumer] = []
    for name in "bcdef":
        others.append(c.consumer(name, "t"))
        others[-1].join()
        c.pass_ms(1000)
        a.beat()
        assert c.g.members["a"].pending_revocation
        c.pass_ms(7000)
        for other in others:
            other.beat()
    assert "a" in c.g.members
    settle(c, [a, *others])
    assert owned(a, *others) == [5] * 6


def test_everything_is_as_it_was_after_a_restart() -> None:
    c = Topics(t=8, orders=2)
    consumers = c.joined_consumers(3, "t")
    d = c.consumer("d", subscribed_topic_regex="ord.*")
    d.join(subscribed_topic_names=None)
    c.pass_ms(200)
    before = described(c.g)
    c.reload()
    assert described(c.g) == before
    assert c.shard.state.consumer_members == 4
    settle(c, [*consumers, d])
    assert owned(*consumers, d) == [3, 3, 2, 2]
    c.pass_ms(SESSION_MS + 1)
    assert c.g.is_empty


def described(group: ConsumerGroup) -> tuple[Any, ...]:
    return (group.members, group.target, group.epoch, group.assignment_epoch, group.metadata_hash, group.resolved)


def test_topics_that_changed_while_nobody_looked_are_noticed() -> None:
    c = Topics(t=2)
    a = c.consumer("a", "t")
    a.join()
    log: list[tuple[GroupRecord, int]] = list(c.log)
    c.set_topics(t=5)
    c.log = log
    c.reload()
    settle(c, [a])
    assert owned(a) == [5]


def test_what_could_not_be_written_is_tried_again() -> None:
    c = Topics(t=4)
    a, b = c.joined_consumers(2, "t")
    c.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    c.pass_ms(SESSION_MS + 10)
    c.set_topics(t=6)
    assert set(c.g.members) == {"m0", "m1"}
    c.append_error = None
    a.beat()
    c.pass_ms(1100)
    assert set(c.g.members) == {"m0"}
    settle(c, [a])
    assert owned(a, b) == [6, 2]


def test_a_group_is_described() -> None:
    c = Topics(t=2)
    a = c.consumer("a", "t", rack_id="r", instance_id="i")
    a.join()
    group = c.ask(DescribeConsumerGroup("g"))
    assert group[:5] == ("g", "Stable", 1, 1, "uniform")
    member = group.members[0]
    assert member[:8] == ("a", "i", "r", 1, "c", "/127.0.0.1", ("t",), None)
    assert member.assigned == member.target == ((c.image.topics["t"].id, (0, 1)),)
    assert not member.is_classic
    assert c.code(DescribeConsumerGroup("none")) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_heartbeat_for_no_group_is_refused() -> None:
    c = Topics(t=2)
    assert c.consumer("a", "t").code(member_epoch=3) is ErrorCode.GROUP_ID_NOT_FOUND
    assert c.consumer("a", "t").code(member_epoch=-1) is ErrorCode.GROUP_ID_NOT_FOUND


def test_an_empty_group_goes_on_with_its_epoch() -> None:
    c = Topics(t=2)
    a = c.consumer("a", "t")
    a.join()
    a.leave()
    b = c.consumer("b", "t")
    assert b.join().member_epoch == 3
    assert owned(b) == [2]


def test_refused_answers_are_errors() -> None:
    c = Topics(t=1)
    with pytest.raises(ApiError):
        c.consumer("a", "t").join(rebalance_timeout_ms=-1)
