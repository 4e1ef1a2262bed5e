"""What offsets, lists and deletion ask of a consumer group."""

from __future__ import annotations

import pytest

from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.records import CurrentMemberRecord
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.groups.consumers import Topics, settle


def code_of_commit(group: ConsumerGroup, member_id: str, epoch: int, version: int = 9, txn: bool = False) -> ErrorCode:
    try:
        group.check_offset_commit(member_id, None, epoch, transactional=txn, version=version)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def test_members_commit_in_their_epoch() -> None:
    c = Topics(t=4)
    a, _ = c.joined_consumers(2, "t")
    assert code_of_commit(c.g, "m0", a.epoch) is ErrorCode.NONE
    assert code_of_commit(c.g, "m0", a.epoch + 1) is ErrorCode.STALE_MEMBER_EPOCH
    assert code_of_commit(c.g, "m0", a.epoch, version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert code_of_commit(c.g, "m0", a.epoch, version=3, txn=True) is ErrorCode.NONE
    assert code_of_commit(c.g, "x", a.epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of_commit(c.g, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of_commit(c.g, "", -1, txn=True) is ErrorCode.NONE


def test_a_commit_on_the_way_survives_a_gain_but_not_a_loss() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t")
    a.join()
    c.set_topics(t=6)
    settle(c, [a])
    assert a.epoch == 2
    assert code_of_commit(c.g, "a", 1) is ErrorCode.NONE
    b = c.consumer("b", "t")
    b.join()
    settle(c, [a, b])
    assert code_of_commit(c.g, "a", 2) is ErrorCode.STALE_MEMBER_EPOCH
    assert code_of_commit(c.g, "a", a.epoch) is ErrorCode.NONE


def test_anybody_may_commit_to_an_empty_group() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t")
    a.join()
    with pytest.raises(ApiError):
        c.g.check_delete()
    a.leave()
    c.g.check_delete()
    assert code_of_commit(c.g, "", -1) is ErrorCode.NONE


def test_offsets_are_read_by_members_in_their_epoch_and_by_administrators() -> None:
    c = Topics(t=4)
    a = c.consumer("a", "t")
    a.join()
    c.g.check_offset_fetch(None, -1)
    c.g.check_offset_fetch("a", 1)
    for member_id, epoch, code in (
        ("a", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("b", 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(ApiError) as refusal:
            c.g.check_offset_fetch(member_id, epoch)
        assert refusal.value.code is code


def test_tombstones_remove_everything() -> None:
    c = Topics(t=4, orders=1)
    c.joined_consumers(2, "t")
    c.consumer("r", subscribed_topic_regex="o.*").join(subscribed_topic_names=None)
    for record in c.g.tombstones():
        c.shard.replay(record, -1)
    assert "g" not in c.shard.state.groups
    assert c.shard.state.consumer_members == 0


def test_records_in_any_order_make_a_group() -> None:
    c = Topics(t=4)
    c.joined_consumers(2, "t")
    members, owners = dict(c.g.members), dict(c.g._owners)
    c.log.sort(key=lambda item: type(item[0]).__name__, reverse=True)
    c.reload()
    assert c.g.members.keys() == members.keys()
    assert c.g._owners == owners


def test_the_last_record_says_who_owns_a_partition() -> None:
    c = Topics(t=1)
    topic_id = c.image.topics["t"].id
    for name in ("a", "b"):
        c.shard.replay(CurrentMemberRecord(group_id="g", member_id=name, assigned=((topic_id, (0,)),)), -1)
    assert c.g.owner_of(topic_id, 0) == "b"
    c.shard.replay(CurrentMemberRecord(group_id="g", member_id="a", gone=True), -1)
    assert c.g.owner_of(topic_id, 0) == "b"


def test_a_copy_is_the_same_and_apart() -> None:
    c = Topics(t=4)
    c.joined_consumers(2, "t")
    copy = c.g.copy()
    assert (copy.members, copy.target, copy._owners, copy.epoch) == (c.g.members, c.g.target, c.g._owners, c.g.epoch)
    copy.apply(CurrentMemberRecord(group_id="g", member_id="m0", gone=True))
    assert c.g.members["m0"].assigned
    assert sum(map(len, c.g._owners.values())) == 4
