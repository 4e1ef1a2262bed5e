"""What members tell each other is read where it can be, and never in the way."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.group_descriptions import (
    GroupType,
    describe_classic,
    describe_modern,
    read_assignment,
    read_subscription,
)
from ottla.model.errors import MalformedMessageError
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.wire.messages import consumer_group_describe as modern
from ottla.wire.messages import describe_groups as classic
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol import TopicPartition as TopicPartitions
from ottla.wire.schema import encode

ASSIGNMENT = b"\x00\x01" + encode(
    ConsumerProtocolAssignment(assigned_partitions=[TopicPartitions(topic="t", partitions=[2, 0])]), 1
)
SUBSCRIPTION = b"\x00\x03" + encode(ConsumerProtocolSubscription(topics=["u", "t"]), 3)


def described(protocol_type: str, assignment: bytes) -> classic.DescribedGroup:
    member = classic.DescribedGroupMember(
        member_id="m",
        client_id="c",
        client_host="/10.0.0.1",
        member_metadata=SUBSCRIPTION,
        member_assignment=assignment,
    )
    return classic.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type=protocol_type, protocol_data="range", members=[member]
    )


def test_a_classic_member_has_its_partitions() -> None:
    group = describe_classic(described("consumer", ASSIGNMENT), 7)
    (member,) = group.members
    assert member.assigned == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert (member.subscribed, member.host, member.target) == (("t", "u"), "10.0.0.1", None)
    assert (group.type, group.assignor, group.coordinator, group.empty) == (GroupType.CLASSIC, "range", 7, False)


@pytest.mark.parametrize(("protocol_type", "assignment"), [("connect", ASSIGNMENT), ("consumer", b"\x00\x01junk")])
def test_what_is_no_assignment_shows_a_member_without_partitions(protocol_type: str, assignment: bytes) -> None:
    (member,) = describe_classic(described(protocol_type, assignment), 7).members
    assert member.assigned == ()


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(blob: bytes) -> None:
    for read in (read_assignment, read_subscription):
        with contextlib.suppress(MalformedMessageError):
            assert isinstance(read(blob), tuple)


def test_a_member_of_the_new_protocol_has_a_target() -> None:
    def partitions(*numbers: int) -> modern.Assignment:
        topic = modern.TopicPartitions(topic_id=ZERO_UUID, topic_name="t", partitions=numbers)
        return modern.Assignment(topic_partitions=[topic])

    member = modern.Member(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        assignment=partitions(0),
        target_assignment=partitions(0, 1),
        member_type=0,
    )
    answer = modern.DescribedGroup(
        group_id="g", group_state="Reconciling", group_epoch=4, assignor_name="uniform", members=[member]
    )
    group = describe_modern(answer, 1)
    (shown,) = group.members
    assert shown.assigned == (TopicPartition("t", 0),)
    assert shown.target == (TopicPartition("t", 0), TopicPartition("t", 1))
    assert (shown.protocol, shown.epoch, group.epoch, group.assignor) == ("classic", 3, 4, "uniform")


def test_types_are_read_in_any_case_and_new_ones_do_not_matter() -> None:
    assert [GroupType.of(name) for name in ("", "Consumer", "share")] == [
        GroupType.CLASSIC,
        GroupType.CONSUMER,
        GroupType.UNKNOWN,
    ]
