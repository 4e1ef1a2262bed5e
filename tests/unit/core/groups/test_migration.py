"""Classic members in a consumer group: they follow the group by joining again."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.core.groups.classic_commands import Heartbeat, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from ottla.core.groups.consumer_member import UNREVOKED_PARTITIONS
from ottla.core.groups.embedded_protocol import parse_assignment
from ottla.core.groups.records import ClassicProtocol
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.blobs import subscription
from tests.unit.core.groups.consumers import Consumer, Topics
from tests.unit.core.groups.coordinator import SESSION_MS, code_of, join

COOPERATIVE = "cooperative-sticky"


class Classic:
    """A classic consumer that rebalances cooperatively: it keeps what it has while it joins."""

    def __init__(self, coordinator: Topics, *topics: str, instance_id: str | None = None) -> None:
        self.coordinator = coordinator
        self.topics = topics
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: set[tuple[str, int]] = set()

    def request(self, **fields: Any) -> JoinGroup:
        owned = {t: tuple(n for name, n in sorted(self.owned) if name == t) for t in {name for name, _ in self.owned}}
        blob = subscription(*self.topics, owned=owned)
        given = {"protocols": (ClassicProtocol(COOPERATIVE, blob),), "group_instance_id": self.instance_id, **fields}
        return join(self.member_id, **given)

    def rejoin(self) -> ErrorCode:
        """Join and ask for the assignment; the code of what failed, if something did."""
        answer = self.coordinator.ask(self.request())
        if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.coordinator.ask(self.request())
        if answer.error_code is not ErrorCode.NONE:
            return code_of(answer)
        assert (answer.protocol_type, answer.protocol_name, answer.leader) == ("consumer", COOPERATIVE, "")
        self.member_id, self.generation = answer.member_id, answer.generation_id
        synced = self.coordinator.ask(self.sync())
        if synced.error_code is ErrorCode.NONE:
            assigned = parse_assignment(synced.assignment)
            assert assigned is not None
            self.owned = {(name, number) for name, numbers in assigned for number in numbers}
        return code_of(synced)

    def sync(self, **fields: Any) -> SyncGroup:
        given = {"generation_id": self.generation, "protocol_name": COOPERATIVE, **fields}
        return SyncGroup(group_id="g", member_id=self.member_id, group_instance_id=self.instance_id, **given)

    def beat(self) -> ErrorCode:
        return self.coordinator.code(Heartbeat("g", self.generation, self.member_id, self.instance_id))

    def follow(self) -> None:
        """Send a heartbeat, and join again where that is the answer."""
        if self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.rejoin()


def mixed(**counts: int) -> tuple[Topics, Consumer, Classic]:
    """A group of a consumer of the new protocol and a classic one, not settled yet."""
    c = Topics(None, **counts)
    new = c.consumer("new", *counts)
    new.join()
    old = Classic(c, *counts)
    assert old.rejoin() is ErrorCode.NONE
    return c, new, old


def settle_mixed(c: Topics, news: list[Consumer], olds: list[Classic]) -> None:
    for _ in range(8):
        c.pass_ms(500)
        for new in news:
            new.beat()
        for old in olds:
            old.follow()
    assert c.g.state_name == "Stable"


def test_a_classic_member_joins_a_consumer_group_and_gets_its_share() -> None:
    c, new, old = mixed(t=6)
    assert not old.owned
    settle_mixed(c, [new], [old])
    assert (len(new.owned), len(old.owned)) == (3, 3)
    assert c.g.members[old.member_id].classic is not None
    assert old.beat() is ErrorCode.NONE
    assert c.shard.state.consumer_members == 1


def test_a_classic_member_gives_back_when_somebody_comes() -> None:
    c, new, old = mixed(t=6)
    settle_mixed(c, [new], [old])
    third = c.consumer("third", "t")
    third.join()
    c.pass_ms(1000)
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    before = set(old.owned)
    assert old.rejoin() is ErrorCode.NONE
    assert old.owned < before
    assert c.g.members[old.member_id].state == UNREVOKED_PARTITIONS
    settle_mixed(c, [new, third], [old])
    assert sorted([len(new.owned), len(old.owned), len(third.owned)]) == [2, 2, 2]


def test_classic_members_survive_a_restart() -> None:
    c, new, old = mixed(t=6)
    settle_mixed(c, [new], [old])
    c.reload()
    assert old.beat() is ErrorCode.NONE
    c.pass_ms(SESSION_MS - 1)
    new.beat()
    assert len(c.g.members) == 2
    c.pass_ms(2)
    assert set(c.g.members) == {"new"}


def test_requests_of_strangers_and_of_other_generations_are_refused() -> None:
    c, new, old = mixed(t=2)
    settle_mixed(c, [new], [old])
    assert c.code(Heartbeat("g", old.generation + 1, old.member_id)) is ErrorCode.ILLEGAL_GENERATION
    assert c.code(Heartbeat("g", 1, "stranger")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert c.code(Heartbeat("g", new.epoch, "new")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert c.code(Heartbeat("g", 1, old.member_id, "i")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert c.code(old.sync(generation_id=99)) is ErrorCode.ILLEGAL_GENERATION
    assert c.code(old.sync(protocol_name="other")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert c.code(old.sync(protocol_type="connect")) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": "connect"},
        {"protocols": ()},
        {"protocols": (ClassicProtocol(COOPERATIVE, b"\x00"),)},
        {"protocols": (ClassicProtocol("other", subscription("t")),)},
    ],
)
def test_protocols_must_fit(fields: dict[str, Any]) -> None:
    c, _, _ = mixed(t=2)
    assert c.code(Classic(c, "t").request(**fields)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_that_does_not_join_again_in_time_is_removed() -> None:
    c, new, old = mixed(t=6)
    settle_mixed(c, [new], [old])
    third = c.consumer("third", "t")
    third.join()
    c.pass_ms(1000)
    for _ in range(14):
        if old.member_id in c.g.members:
            assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        third.beat()
        c.pass_ms(5000)
    assert set(c.g.members) == {"new", "third"}


def test_a_member_that_does_not_sync_in_time_is_removed() -> None:
    c = Topics(t=2)
    new = c.consumer("new", "t")
    new.join()
    old = Classic(c, "t")
    answer = c.ask(old.request(member_id_required=False))
    for _ in range(14):
        new.beat()
        if answer.member_id in c.g.members:
            c.code(Heartbeat("g", answer.generation_id, answer.member_id))
        c.pass_ms(5000)
    assert set(c.g.members) == {"new"}


def test_members_leave_one_by_one_or_are_removed_by_their_instance_ids() -> None:
    c, new, old = mixed(t=2)
    static = Classic(c, "t", instance_id="i")
    static.rejoin()
    leaving = (
        LeavingMember("stranger"),
        LeavingMember("new"),
        LeavingMember("", "i"),
        LeavingMember("wrong", "i"),
        LeavingMember("", "none"),
        LeavingMember(old.member_id),
        LeavingMember(old.member_id),
    )
    codes = [left.error_code for left in c.ask(LeaveGroup(group_id="g", members=leaving))]
    unknown, none = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE
    assert codes == [unknown, unknown, none, ErrorCode.FENCED_INSTANCE_ID, unknown, none, unknown]
    assert set(c.g.members) == {"new"}
    new.beat()
    assert len(new.owned) == 2


def test_a_member_that_goes_on_with_the_new_protocol_under_its_id_is_not_waited_for_in_the_old_one() -> None:
    c, new, old = mixed(t=4)
    assert code_of(c.ask(old.request())) is ErrorCode.NONE  # and never asks for its assignment
    upgraded = c.consumer(old.member_id, "t")
    upgraded.join()
    for _ in range(14):
        c.pass_ms(5000)
        new.beat()
        upgraded.beat()
    assert set(c.g.members) == {"new", old.member_id}


def test_a_static_member_comes_back_with_the_other_protocol() -> None:
    c = Topics(t=4)
    new = c.consumer("new", "t")
    new.join()
    static = c.consumer("s", "t", instance_id="i")
    static.join()
    settle_mixed(c, [new, static], [])
    static.leave(-2)
    old = Classic(c, "t", instance_id="i")
    assert old.rejoin() is ErrorCode.NONE
    settle_mixed(c, [new], [old])
    assert (len(new.owned), len(old.owned)) == (2, 2)
    assert c.g.static_members == {"i": old.member_id}
    back = c.consumer("s2", "t", instance_id="i")
    back.join()
    settle_mixed(c, [new, back], [])
    assert (len(new.owned), len(back.owned), c.g.classic_member_count) == (2, 2, 0)
