"""Groups of any broker: both protocols, old versions, and refusals that say what to do."""

from __future__ import annotations

import pytest

from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError, NotFoundError
from ottla.client.group_descriptions import CommittedOffset, GroupType
from ottla.client.groups import GroupAdmin
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages import consumer_group_describe as modern
from ottla.wire.messages import describe_groups as classic
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tests.unit.client.scripted_coordinator import ScriptedCoordinator

PARTITION = TopicPartition("t", 0)


def test_a_group_of_the_new_protocol_is_described_as_such() -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        group = modern.DescribedGroup(group_id="g", group_state="Stable", group_epoch=5)
        broker.on(ConsumerGroupDescribeRequest, lambda _: ConsumerGroupDescribeResponse(groups=[group]))
        assert GroupAdmin(cluster).describe_group("g").type is GroupType.CONSUMER


@pytest.mark.parametrize("new_protocol", [True, False])
def test_any_other_group_is_described_as_classic(new_protocol: bool) -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        if new_protocol:
            none = modern.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
            broker.on(ConsumerGroupDescribeRequest, lambda _: ConsumerGroupDescribeResponse(groups=[none]))
        found = classic.DescribedGroup(group_id="g", group_state="Empty")
        broker.on(DescribeGroupsRequest, lambda _: DescribeGroupsResponse(groups=[found]))
        group = GroupAdmin(cluster).describe_group("g")
        assert (group.type, group.empty) == (GroupType.CLASSIC, True)


@pytest.mark.parametrize(
    "none",
    [
        classic.DescribedGroup(group_id="g", group_state="Dead"),
        classic.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND, group_state="Dead"),
    ],
)
def test_a_group_that_is_not_there_is_not_found(none: classic.DescribedGroup) -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.on(DescribeGroupsRequest, lambda _: DescribeGroupsResponse(groups=[none]))
        with pytest.raises(NotFoundError, match="no group 'g'"):
            GroupAdmin(cluster).describe_group("g")


@pytest.mark.parametrize("versions", [(0, 5), (0, 3)])
def test_groups_are_chosen_by_state_and_type(versions: tuple[int, int]) -> None:
    listed = [
        ListedGroup(group_id="b", protocol_type="consumer", group_state="Stable", group_type="Consumer"),
        ListedGroup(group_id="a", protocol_type="consumer", group_state="Empty", group_type="Classic"),
    ]
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.on(ListGroupsRequest, lambda _: ListGroupsResponse(groups=listed), versions)
        admin = GroupAdmin(cluster)
        assert [group.group_id for group in admin.list_groups()] == ["a", "b"]
        if versions == (0, 5):
            assert [group.group_id for group in admin.list_groups(["stable"], ["CONSUMER"])] == ["b"]
            assert broker.asked(ListGroupsRequest)[-1].states_filter == ["stable"]
        assert admin.list_groups(["Dead"]) == []


def test_offsets_are_fetched_from_new_brokers() -> None:
    entries = [
        OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, metadata="x"),
        OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
    ]
    group = OffsetFetchResponseGroup(group_id="g", topics=[OffsetFetchResponseTopics(name="t", partitions=entries)])
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.on(OffsetFetchRequest, lambda _: OffsetFetchResponse(groups=[group]))
        assert GroupAdmin(cluster).fetch_offsets("g") == {PARTITION: CommittedOffset(5, -1, "x")}
        assert broker.asked(OffsetFetchRequest)[0].groups[0].topics is None


def test_offsets_are_fetched_from_old_brokers() -> None:
    topic = OffsetFetchResponseTopic(
        name="t", partitions=[OffsetFetchResponsePartition(partition_index=0, committed_offset=5)]
    )
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.on(OffsetFetchRequest, lambda _: OffsetFetchResponse(topics=[topic]), (1, 5))
        admin = GroupAdmin(cluster)
        assert admin.fetch_offsets("g", [PARTITION], require_stable=True)[PARTITION].offset == 5
        assert admin.fetch_offsets("g")[PARTITION].offset == 5
        named, every = broker.asked(OffsetFetchRequest)
        assert named.topics is not None
        assert [topic.name for topic in named.topics] == ["t"]
        assert every.topics is None


def test_unstable_offsets_are_waited_for() -> None:
    def answer(code: int) -> OffsetFetchResponse:
        entry = OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, error_code=code)
        topic = OffsetFetchResponseTopics(name="t", partitions=[entry])
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])

    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.answers_in_turn(OffsetFetchRequest, [answer(ErrorCode.UNSTABLE_OFFSET_COMMIT), answer(0)])
        assert GroupAdmin(cluster).fetch_offsets("g", [PARTITION], require_stable=True)[PARTITION].offset == 5


def committed(code: int) -> OffsetCommitResponse:
    entry = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[entry])])


def test_offsets_are_set_from_outside_after_the_coordinator_has_moved() -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.answers_in_turn(OffsetCommitRequest, [committed(ErrorCode.NOT_COORDINATOR), committed(0)])
        GroupAdmin(cluster).commit_offsets("g", {PARTITION: 9})
        sent = broker.asked(OffsetCommitRequest)[-1]
        assert (sent.member_id, sent.generation_id_or_member_epoch) == ("", -1)
        assert (sent.topics[0].name, sent.topics[0].partitions[0].committed_offset) == ("t", 9)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH])
def test_a_group_in_use_keeps_its_offsets_and_says_why(code: ErrorCode) -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.on(OffsetCommitRequest, lambda _: committed(code))
        with pytest.raises(BrokerError, match="stop its consumers"):
            GroupAdmin(cluster).commit_offsets("g", {PARTITION: 9})


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (ErrorCode.NON_EMPTY_GROUP, BrokerError, "stop its consumers"),
        (ErrorCode.GROUP_ID_NOT_FOUND, NotFoundError, "no group 'g'"),
    ],
)
def test_a_group_that_cannot_be_deleted_says_why(code: ErrorCode, kind: type[BrokerError], said: str) -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        result = DeletableGroupResult(group_id="g", error_code=code)
        broker.on(DeleteGroupsRequest, lambda _: DeleteGroupsResponse(results=[result]))
        with pytest.raises(kind, match=said):
            GroupAdmin(cluster).delete_group("g")


def test_offsets_in_use_are_not_deleted() -> None:
    entry = OffsetDeleteResponsePartition(partition_index=0, error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    answer = OffsetDeleteResponse(topics=[OffsetDeleteResponseTopic(name="t", partitions=[entry])])
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.on(OffsetDeleteRequest, lambda _: answer)
        with pytest.raises(BrokerError, match="subscribed to topic 't'"):
            GroupAdmin(cluster).delete_offsets("g", [PARTITION])
