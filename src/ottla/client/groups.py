"""Administration of groups: list, describe, delete; fetch, commit and delete their offsets.

Every call goes to the group's coordinator and is repeated while that is on the move (see `coordinators.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.coordinators import CoordinatorKind, Coordinators
from ottla.client.errors import UnsupportedVersionError, broker_error, error_code
from ottla.client.group_descriptions import (
    CommittedOffset,
    GroupDescription,
    GroupType,
    ListedGroup,
    describe_classic,
    describe_modern,
)
from ottla.client.group_offsets import (
    NAMES_UNTIL,
    by_topic,
    check_group,
    commit_request,
    committed_offsets,
    fetch_request,
    send_commit,
)
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

_STATES_SINCE: Final = 4
_TYPES_SINCE: Final = 5
_DEAD: Final = "Dead"
_MEMBER_CODES: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.NON_EMPTY_GROUP}
)
"""What a coordinator says to somebody outside who changes offsets of a group that has members."""


class GroupAdmin:
    """Every administrative call about groups, over a cluster that somebody else closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorKind.GROUP)

    # Groups

    def list_groups(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[ListedGroup]:
        """The groups of all brokers, by id; only those in these states and of these types, in any case, if given."""

        def attempt() -> list[ListedGroup]:
            under_way = []
            for broker in self._cluster.brokers():
                connection = self._cluster.connection(broker.node_id)
                version = connection.version_of(ListGroupsRequest)
                request = ListGroupsRequest(
                    states_filter=list(states) if version >= _STATES_SINCE else [],
                    types_filter=list(types) if version >= _TYPES_SINCE else [],
                )
                pending = connection.send(request, ListGroupsResponse, version=version)
                under_way.append((broker.node_id, connection, pending))
            found: list[ListedGroup] = []
            for node_id, connection, pending in under_way:
                found += _listed(connection.receive(pending), node_id)
            return sorted(group for group in found if _wanted(group, states, types))

        return self._cluster.retry(attempt)

    def describe_group(self, group_id: str) -> GroupDescription:
        """One group with its members; NotFoundError if there is none of this name.

        Nobody has to list all groups to know the type of one: the coordinator of a consumer group describes it as such,
        and says of any other that it is none.
        """

        def attempt(connection: Connection) -> GroupDescription:
            node_id = self._coordinators.node_id(group_id)
            return _describe_modern(connection, group_id, node_id) or _describe_classic(connection, group_id, node_id)

        return self._coordinators.call(group_id, attempt)

    def delete_group(self, group_id: str) -> None:
        """Forget a group and its offsets; NotFoundError if there is none, BrokerError if it has members."""

        def attempt(connection: Connection) -> None:
            result = connection.call(DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse).results[0]
            if result.error_code == ErrorCode.NON_EMPTY_GROUP:
                detail = "it has members; stop its consumers and try again"
                raise broker_error(result.error_code, f"cannot delete group {group_id!r}", detail)
            check_group(result.error_code, f"cannot delete group {group_id!r}", group_id)

        self._coordinators.call(group_id, attempt, repeatable=False)

    # Offsets

    def fetch_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that the group has committed (None: all of them); partitions without one are left out.

        `require_stable` waits for the end of transactions that would change them.
        """
        wanted = None if partitions is None else by_topic(partitions)

        def attempt(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
            version = min(connection.version_of(OffsetFetchRequest), NAMES_UNTIL)
            request = fetch_request(group_id, wanted, version, require_stable=require_stable)
            answer = connection.receive(connection.send(request, OffsetFetchResponse, version=version))
            return committed_offsets(answer, group_id)

        return self._coordinators.call(group_id, attempt)

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]) -> None:
        """Set offsets from outside, which is allowed while nobody is in the group; it is made if it is not there."""
        request = commit_request(group_id, offsets)

        def attempt(connection: Connection) -> None:
            for partition, code in send_commit(connection, request).items():
                if error_code(code) in _MEMBER_CODES:
                    detail = "it has members; stop its consumers and try again"
                    raise broker_error(code, f"cannot set offsets of group {group_id!r}", detail)
                check_group(code, f"cannot set the offset of group {group_id!r} in {partition}", group_id)

        self._coordinators.call(group_id, attempt)

    def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget offsets of the group in these partitions; refused for topics that its members are subscribed to."""
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for name, numbers in by_topic(partitions).items()
        ]

        def attempt(connection: Connection) -> None:
            subject = f"cannot delete offsets of group {group_id!r}"
            answer = connection.call(OffsetDeleteRequest(group_id=group_id, topics=topics), OffsetDeleteResponse)
            check_group(answer.error_code, subject, group_id)
            for topic in answer.topics:
                for result in topic.partitions:
                    if result.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC:
                        detail = f"its members are subscribed to topic {topic.name!r}; stop them and try again"
                        raise broker_error(result.error_code, subject, detail)
                    check_group(result.error_code, f"{subject} in {topic.name}-{result.partition_index}", group_id)

        self._coordinators.call(group_id, attempt)


def _describe_modern(connection: Connection, group_id: str, node_id: int) -> GroupDescription | None:
    """The group, or None if it is not one of the new protocol."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    try:
        group = connection.call(request, ConsumerGroupDescribeResponse).groups[0]
    except UnsupportedVersionError:
        return None  # a broker from before the new protocol
    if error_code(group.error_code) in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    if group.error_code != ErrorCode.NONE:
        raise broker_error(group.error_code, f"cannot describe group {group_id!r}", group.error_message)
    return describe_modern(group, node_id)


def _describe_classic(connection: Connection, group_id: str, node_id: int) -> GroupDescription:
    group = connection.call(DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse).groups[0]
    # Before version 6 a group that is not there is dead, and no error.
    code = ErrorCode.GROUP_ID_NOT_FOUND if group.group_state == _DEAD and not group.error_code else group.error_code
    check_group(code, f"cannot describe group {group_id!r}", group_id)
    return describe_classic(group, node_id)


def _listed(answer: ListGroupsResponse, node_id: int) -> list[ListedGroup]:
    if answer.error_code != ErrorCode.NONE:
        raise broker_error(answer.error_code, f"cannot list the groups of broker {node_id}")
    return [
        ListedGroup(
            group_id=group.group_id,
            type=(group.group_type or GroupType.CLASSIC.value).lower(),
            state=group.group_state,
            protocol_type=group.protocol_type,
            coordinator=node_id,
        )
        for group in answer.groups
    ]


def _wanted(group: ListedGroup, states: Collection[str], types: Collection[str]) -> bool:
    """Also what an old broker, which knows no filters, is asked for."""
    state_fits = not states or group.state.lower() in {state.lower() for state in states}
    return state_fits and (not types or group.type in {kind.lower() for kind in types})
