"""Groups that change their kind while they are in use."""

from __future__ import annotations

import pytest

from ottla.core.groups.classic_commands import Heartbeat
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.embedded_protocol import encode_assignment
from ottla.core.groups.records import ClassicProtocol
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.blobs import subscription
from tests.unit.core.groups.consumers import Consumer, Topics
from tests.unit.core.groups.coordinator import join, offers
from tests.unit.core.groups.test_migration import COOPERATIVE, Classic, mixed, settle_mixed

POLICY = "group.consumer.migration.policy"


def classic_group(c: Topics, *shares: tuple[int, ...]) -> list[Classic]:
    """A stable classic group of cooperative consumers of t, with these partitions."""
    members = [Classic(c, "t") for _ in shares]
    protocols = (ClassicProtocol(COOPERATIVE, subscription("t")),)
    for member in members:
        member.member_id = c.new_member(protocols=protocols)[0]
    c.pass_ms(0)
    group = c.group()
    assignments = [
        (member.member_id, encode_assignment(1, {"t": share})) for member, share in zip(members, shares, strict=True)
    ]
    for member in sorted(members, key=lambda member: member.member_id == group.leader):
        c.send(c.sync(member.member_id, *(assignments if member.member_id == group.leader else ())))
    for member, share in zip(members, shares, strict=True):
        member.generation = group.generation
        member.owned = {("t", number) for number in share}
    assert group.state_name == "Stable"
    return members


def test_a_classic_group_becomes_a_consumer_group_when_somebody_new_joins() -> None:
    c = Topics(t=6)
    olds = classic_group(c, (0, 1, 2), (3, 4, 5))
    generation = c.group().generation
    new = c.consumer("new", "t")
    new.join()
    assert c.g.kind == "consumer"
    assert c.g.epoch == generation + 1
    assert not new.owned
    assert [old.beat() for old in olds] == [ErrorCode.REBALANCE_IN_PROGRESS] * 2
    settle_mixed(c, [new], olds)
    assert sorted([len(new.owned), *(len(old.owned) for old in olds)]) == [2, 2, 2]
    state = c.g.members
    c.reload()
    assert c.g.members == state


def test_what_waits_in_a_classic_group_is_told_to_join_again() -> None:
    c = Topics(t=6)
    olds = classic_group(c, (0, 1, 2), (3, 4, 5))
    waiting = c.send(olds[0].request())
    assert waiting not in c.answers or c.answers[waiting].error_code is ErrorCode.NONE
    late = c.send(join(protocols=(ClassicProtocol(COOPERATIVE, subscription("t")),), member_id_required=False))
    assert late in c.open
    new = c.consumer("new", "t")
    new.join()
    assert c.answers[late].error_code is ErrorCode.REBALANCE_IN_PROGRESS
    assert not c.open
    assert len(c.g.members) == 4


def test_the_group_becomes_classic_again_when_the_last_new_member_goes() -> None:
    c, new, old = mixed(t=4)
    settle_mixed(c, [new], [old])
    new.leave()
    group = c.shard.state.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert set(group.members) == {old.member_id}
    c.pass_ms(0)
    assert group.state_name == "PreparingRebalance"
    assert c.code(Heartbeat("g", group.generation, old.member_id)) is ErrorCode.REBALANCE_IN_PROGRESS
    ticket = c.send(old.request())
    c.pass_ms(0)
    assert c.joined(ticket).leader == old.member_id
    assert c.shard.state.consumer_members == 0
    c.reload()
    assert isinstance(c.shard.state.groups["g"], ClassicGroup)


def test_the_group_becomes_classic_when_the_last_new_member_is_silent() -> None:
    c, new, old = mixed(t=4)
    settle_mixed(c, [new], [old])
    for _ in range(10):
        c.pass_ms(5000)
        if isinstance(c.shard.state.groups["g"], ConsumerGroup):
            old.follow()
    assert isinstance(c.shard.state.groups["g"], ClassicGroup)


def test_a_static_member_that_changes_its_protocol_may_be_the_last() -> None:
    c = Topics(t=4)
    new = c.consumer("new", "t", instance_id="i")
    new.join()
    new.leave(-2)
    old = Classic(c, "t", instance_id="i")
    assert old.rejoin() is ErrorCode.REBALANCE_IN_PROGRESS
    assert isinstance(c.shard.state.groups["g"], ClassicGroup)
    ticket = c.send(old.request())
    c.pass_ms(0)
    assert c.joined(ticket).error_code is ErrorCode.NONE


def test_an_empty_group_takes_either_protocol() -> None:
    c = Topics(t=4)
    new = c.consumer("new", "t")
    new.join()
    new.leave()
    classic_group(c, (0, 1, 2, 3))
    (member_id,) = c.group().members
    c.leave(member_id)
    c.pass_ms(0)
    again = c.consumer("again", "t")
    again.join()
    assert (len(again.owned), c.g.kind) == (4, "consumer")
    c.reload()
    assert c.g.kind == "consumer"


@pytest.mark.parametrize("policy", ["DISABLED", "downgrade"])
def test_without_leave_to_upgrade_a_classic_group_stays(policy: str) -> None:
    c = Topics({POLICY: policy}, t=4)
    classic_group(c, (0, 1, 2, 3))
    assert refused(c) is ErrorCode.GROUP_ID_NOT_FOUND
    assert c.group().state_name == "Stable"


def refused(c: Topics) -> ErrorCode:
    new: Consumer = c.consumer("new", "t")
    return new.code(**new.whole())


def test_a_group_that_is_too_large_or_no_consumers_stays() -> None:
    c = Topics({"group.consumer.max.size": "1"}, t=4)
    classic_group(c, (0, 1), (2, 3))
    assert refused(c) is ErrorCode.GROUP_ID_NOT_FOUND
    other = Topics(t=4)
    other.stable(protocol_type="connect", protocols=offers("default"))
    assert refused(other) is ErrorCode.GROUP_ID_NOT_FOUND


def test_blobs_that_cannot_be_read_leave_the_group_as_it_is() -> None:
    c = Topics(t=4)
    ids = c.stable(protocols=offers("range"))
    assert refused(c) is ErrorCode.GROUP_ID_NOT_FOUND
    assert [c.beat(member_id) for member_id in ids] == [ErrorCode.NONE] * 2


@pytest.mark.parametrize("policy", ["DISABLED", "upgrade"])
def test_without_leave_to_downgrade_the_group_stays_as_it_is(policy: str) -> None:
    c = Topics({POLICY: policy}, t=4)
    new = c.consumer("new", "t")
    new.join()
    old = Classic(c, "t")
    old.rejoin()
    settle_mixed(c, [new], [old])
    new.leave()
    settle_mixed(c, [], [old])
    assert len(old.owned) == 4


def test_a_partition_that_a_leader_gave_to_two_goes_to_one() -> None:
    c = Topics(t=2)
    olds = classic_group(c, (0, 1), (1,))
    new = c.consumer("new", "t")
    new.join()
    have = [c.g.members[old.member_id] for old in olds]
    assert sum(sum(map(len, member.assigned.values())) for member in have) == 2
