"""Who may send a heartbeat, and who is fenced."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.groups.consumers import Topics, settle


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group_id": " "}, "GroupId"),
        ({"member_id": ""}, "MemberId"),
        ({"instance_id": ""}, "InstanceId"),
        ({"rack_id": " "}, "RackId"),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, "TopicPartitions"),
        ({"topic_partitions": ((None, (0,)),)}, "TopicPartitions"),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames"),
        ({"member_epoch": -3}, "MemberEpoch"),
        ({"member_epoch": -2}, "InstanceId"),
        ({"member_epoch": 1, "member_id": "", "version": 0}, "MemberId"),
    ],
)
def test_requests_that_cannot_be_right_are_refused(fields: dict[str, Any], message: str) -> None:
    c = Topics(t=1)
    a = c.consumer("a", "t")
    answer = c.ask(a.command(**{**a.whole(), **fields}))
    assert isinstance(answer, ApiError)
    assert (answer.code, message in answer.message) == (ErrorCode.INVALID_REQUEST, True)


def test_an_assignor_must_be_offered() -> None:
    c = Topics({"group.consumer.assignors": "range"}, t=1)
    a = c.consumer("a", "t")
    assert a.code(**{**a.whole(), "server_assignor": "uniform"}) is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert a.code(**{**a.whole(), "server_assignor": "range"}) is ErrorCode.NONE


def test_a_group_may_be_full_but_not_for_its_members() -> None:
    c = Topics({"group.consumer.max.size": "2"}, t=1)
    a, b = c.joined_consumers(2, "t")
    d = c.consumer("d", "t")
    assert d.code(**d.whole()) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert a.join().member_epoch == b.epoch


def test_members_without_topics_may_join() -> None:
    c = Topics(t=1)
    a = c.consumer("a")
    a.join()
    assert not a.owned
    assert c.g.epoch == 1


@pytest.mark.parametrize("epoch", [7, 1])
def test_a_foreign_epoch_is_fenced(epoch: int) -> None:
    c = Topics(t=4)
    a, _ = c.joined_consumers(2, "t")
    a.send(subscribed_topic_names=("t", "u"))
    settle(c, [a, _])
    assert a.code(member_epoch=epoch) is ErrorCode.FENCED_MEMBER_EPOCH


def test_the_epoch_before_is_accepted_with_nothing_that_it_must_not_have() -> None:
    c = Topics(t=4)
    a, b = c.joined_consumers(2, "t")
    old = a.epoch
    c.set_topics(t=6)
    c.pass_ms(1000)
    lost = c.ask(a.command())
    assert lost.member_epoch == old + 1
    assert a.code() is ErrorCode.FENCED_MEMBER_EPOCH
    foreign = b.partitions()
    assert a.code(topic_partitions=foreign) is ErrorCode.FENCED_MEMBER_EPOCH
    again = a.send(topic_partitions=a.partitions())
    assert (again.member_epoch, len(a.owned)) == (old + 1, 3)


def test_a_fenced_member_begins_anew_under_its_id() -> None:
    c = Topics(t=4)
    a, b = c.joined_consumers(2, "t")
    assert a.code(member_epoch=99) is ErrorCode.FENCED_MEMBER_EPOCH
    answer = a.join()
    assert answer.member_epoch == b.epoch
    assert (len(a.owned), len(b.owned)) == (2, 2)


def test_unknown_members_are_told_so() -> None:
    c = Topics(t=1)
    c.joined_consumers(1, "t")
    stranger = c.consumer("stranger", "t")
    assert stranger.code(member_epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.code(member_epoch=-1) is ErrorCode.UNKNOWN_MEMBER_ID
    static = c.consumer("static", "t", instance_id="i")
    assert static.code(member_epoch=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert static.code(member_epoch=-2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_comes_back_to_what_it_had() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t", instance_id="i")
    b = c.consumer("b", "t")
    a.join()
    b.join()
    settle(c, [a, b])
    had, epoch, written = set(a.owned), c.g.epoch, c.g.epoch
    assert a.leave(-2).member_epoch == -2
    b.beat()
    assert len(b.owned) == 2
    again = c.consumer("a2", "t", instance_id="i")
    again.join()
    assert (again.owned, again.epoch, c.g.epoch) == (had, epoch, written)
    assert set(c.g.members) == {"a2", "b"}
    assert a.code(member_epoch=epoch) is ErrorCode.FENCED_INSTANCE_ID
    assert a.code(member_epoch=-1) is ErrorCode.FENCED_INSTANCE_ID
    c.reload()
    assert set(c.g.members) == {"a2", "b"}
    assert c.g.static_members == {"i": "a2"}


def test_a_static_member_that_came_back_under_its_own_id_and_died_holds_its_partitions_no_longer() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t", instance_id="i")
    b = c.consumer("b", "t")
    a.join()
    b.join()
    settle(c, [a, b])
    had = set(a.owned)
    a.leave(-2)
    a.owned = set()
    a.join()
    assert a.owned == had
    for _ in range(10):
        c.pass_ms(10_000)
        b.beat()
    assert set(c.g.members) == {"b"}
    assert len(b.owned) == 4


def test_a_commit_of_a_static_member_from_before_it_went_is_not_accepted_after_it_came_back() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t", instance_id="i")
    b = c.consumer("b", "t")
    a.join()
    b.send(**b.whole())
    c.pass_ms(1000)
    a.send()
    before = a.epoch
    assert c.g.members["a"].pending_revocation
    a.leave(-2)
    a.owned = set()
    a.join()
    assert a.epoch > before
    with pytest.raises(ApiError) as refused:
        c.g.check_offset_commit("a", "i", before, transactional=False, version=9)
    assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH
    c.g.check_offset_commit("a", "i", a.epoch, transactional=False, version=9)


def test_a_static_member_that_is_away_has_its_session_whatever_it_had_to_give_back() -> None:
    c = Topics({"group.consumer.session.timeout.ms": "60000"}, t=4)
    a = c.consumer("a", "t", instance_id="i", rebalance_timeout_ms=20_000)
    b = c.consumer("b", "t")
    a.join()
    b.send(**b.whole())
    c.pass_ms(1000)
    a.send()
    assert c.g.members["a"].pending_revocation
    a.leave(-2)
    for _ in range(3):
        c.pass_ms(10_000)
        b.beat()
    assert "a" in c.g.members


def test_an_instance_id_in_use_is_not_released() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t", instance_id="i")
    a.join()
    other = c.consumer("b", "t", instance_id="i")
    assert other.code(**other.whole()) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert a.beat().member_epoch == 1


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t", instance_id="i")
    a.join()
    a.leave(-2)
    assert a.code(member_epoch=1) is ErrorCode.FENCED_MEMBER_EPOCH
    c.pass_ms(45_001)
    assert c.g.is_empty


def test_a_static_member_may_leave_for_good() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t", instance_id="i")
    a.join()
    a.leave()
    assert c.g.is_empty
    assert not c.g.static_members


def test_a_full_group_lets_a_static_member_back_in() -> None:
    c = Topics({"group.consumer.max.size": "1"}, t=4)
    a = c.consumer("a", "t", instance_id="i")
    a.join()
    a.leave(-2)
    again = c.consumer("b", "t", instance_id="i")
    again.join()
    assert len(again.owned) == 4


def test_a_member_may_become_a_static_one_and_change_its_instance_id() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t")
    a.join()
    for name in ("i", "j"):
        a.join(instance_id=name)
        assert c.g.static_members == {name: "a"}
    c.reload()
    assert c.g.static_members == {"j": "a"}
