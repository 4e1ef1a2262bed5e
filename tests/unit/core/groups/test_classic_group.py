"""What a classic group can be asked by others: offsets, subscriptions, protocols."""

from __future__ import annotations

import pytest

from ottla.core.groups.classic_group import (
    COMPLETING,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicGroup,
    ClassicState,
    select_protocol,
)
from ottla.core.groups.classic_member import ClassicMember
from ottla.core.groups.group import FROM_COMMIT, Group
from ottla.core.groups.records import ClassicGroupRecord, ClassicProtocol
from ottla.model.errors import ApiError, ErrorCode

READS_A = b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x00\x01a" + b"\xff\xff\xff\xff"


def group_in(state: ClassicState, protocol_type: str = "consumer", metadata: bytes = READS_A) -> ClassicGroup:
    group = ClassicGroup("g", 5)
    if state is not EMPTY:
        member = ClassicMember("m", "i", "c", "h", 1, 1, (ClassicProtocol("range", metadata),))
        group.add(member)
        group.generation = 3
        group.protocol_name = "range"
    group.protocol_type = protocol_type
    group.enter(state, 7)
    return group


def refusal(group: Group, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool) -> ErrorCode:
    try:
        group.check_offset_commit(member_id, instance_id, epoch, transactional=transactional, version=9)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


@pytest.mark.parametrize(
    ("state", "who", "plain", "transactional"),
    [
        (EMPTY, ("", None, -1), ErrorCode.NONE, ErrorCode.NONE),
        (EMPTY, ("m", None, -1), ErrorCode.NONE, ErrorCode.NONE),
        (EMPTY, ("m", None, 3), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (STABLE, ("", None, -1), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NONE),
        (STABLE, ("m", None, 3), ErrorCode.NONE, ErrorCode.NONE),
        (STABLE, ("m", "i", 3), ErrorCode.NONE, ErrorCode.NONE),
        (STABLE, ("m", None, 2), ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (STABLE, ("m", None, -1), ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
        (STABLE, ("x", None, 3), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (STABLE, ("x", "i", 3), ErrorCode.FENCED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID),
        (STABLE, ("m", "j", 3), ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID),
        (PREPARING, ("m", None, 3), ErrorCode.NONE, ErrorCode.NONE),
        (COMPLETING, ("m", None, 3), ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE),
    ],
)
def test_who_may_commit(
    state: ClassicState, who: tuple[str, str | None, int], plain: ErrorCode, transactional: ErrorCode
) -> None:
    group = group_in(state)
    assert refusal(group, *who, transactional=False) is plain
    assert refusal(group, *who, transactional=True) is transactional


@pytest.mark.parametrize(
    ("state", "protocol_type", "metadata", "since"),
    [
        (EMPTY, "", b"", FROM_COMMIT),
        (EMPTY, "consumer", b"", 7),
        (STABLE, "consumer", READS_A, FROM_COMMIT),
        (STABLE, "consumer", b"unreadable", None),
        (STABLE, "connect", READS_A, None),
        (PREPARING, "consumer", READS_A, None),
        (COMPLETING, "consumer", READS_A, None),
    ],
)
def test_since_when_offsets_are_unused(
    state: ClassicState, protocol_type: str, metadata: bytes, since: int | None
) -> None:
    assert group_in(state, protocol_type, metadata).offsets_expire_from() == since


@pytest.mark.parametrize(
    ("state", "protocol_type", "metadata", "reads"),
    [
        (EMPTY, "consumer", b"", ""),
        (EMPTY, "", b"", ""),
        (STABLE, "consumer", READS_A, "a"),
        (STABLE, "consumer", b"unreadable", "ab"),
        (STABLE, "connect", READS_A, ""),
    ],
)
def test_which_topics_are_read(state: ClassicState, protocol_type: str, metadata: bytes, reads: str) -> None:
    group = group_in(state, protocol_type, metadata)
    assert [topic for topic in "ab" if group.is_subscribed_to(topic)] == list(reads)


def test_what_is_read_changes_with_the_members() -> None:
    group = group_in(STABLE)
    assert group.is_subscribed_to("a")
    group.remove("m")
    assert not group.is_subscribed_to("a")


@pytest.mark.parametrize("state", [EMPTY, PREPARING, COMPLETING, STABLE])
@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_a_group_with_members_is_not_deleted(state: ClassicState, protocol_type: str) -> None:
    group = group_in(state, protocol_type)
    for check, allowed in (
        (group.check_delete, state is EMPTY),
        (group.check_offset_delete, state is EMPTY or protocol_type == "consumer"),
    ):
        if allowed:
            check()
        else:
            with pytest.raises(ApiError) as raised:
                check()
            assert raised.value.code is ErrorCode.NON_EMPTY_GROUP
    group.check_offset_fetch(None, -1)
    assert group.tombstones() == [ClassicGroupRecord(group_id="g", gone=True)]


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ([], None),
        (["ab"], "a"),
        (["ab", "b"], "b"),
        (["ab", "ba", "ba"], "b"),
        (["abc", "cab", "cb"], "c"),
        (["a", "b"], None),
    ],
)
def test_the_choice_of_a_protocol(offered: list[str], chosen: str | None) -> None:
    assert select_protocol([tuple(ClassicProtocol(name, b"") for name in names) for names in offered]) == chosen
