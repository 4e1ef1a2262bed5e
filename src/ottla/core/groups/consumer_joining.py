"""Who a heartbeat comes from: checks of the request, members that join or come back, and fencing."""

from __future__ import annotations

from dataclasses import replace

from ottla.core.groups.consumer_commands import (
    CLIENT_MADE_IDS_SINCE,
    JOIN_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupHeartbeat,
)
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.consumer_member import ConsumerMember
from ottla.core.groups.draft import Draft
from ottla.core.groups.partition_map import is_subset, map_of, sorted_partitions
from ottla.core.groups.records import ConsumerMemberRecord, CurrentMemberRecord, Partitions, TargetMemberRecord
from ottla.core.groups.target import offered
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode


def check_heartbeat(command: ConsumerGroupHeartbeat, config: BrokerConfig) -> None:
    """INVALID_REQUEST or UNSUPPORTED_ASSIGNOR for a request that no state of a group could make right."""
    epoch = command.member_epoch
    if command.version >= CLIENT_MADE_IDS_SINCE or epoch != JOIN_EPOCH:
        _refuse_blank(command.member_id, "MemberId can't be empty.")
    _refuse_blank(command.group_id, "GroupId can't be empty.")
    _refuse_blank(command.instance_id, "InstanceId can't be empty.")
    _refuse_blank(command.rack_id, "RackId can't be empty.")
    if epoch < STATIC_LEAVE_EPOCH:
        raise _invalid(f"MemberEpoch is {epoch}, which is invalid.")
    if epoch == STATIC_LEAVE_EPOCH and command.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    if epoch == JOIN_EPOCH:
        _check_join(command)
    wanted, assignors = command.server_assignor, offered(config.group_consumer_assignors)
    if wanted is not None and wanted not in assignors:
        names = ", ".join(assignors)
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR, f"ServerAssignor {wanted} is not supported. Supported assignors: {names}."
        )


def _check_join(command: ConsumerGroupHeartbeat) -> None:
    if command.rebalance_timeout_ms < 0:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if command.topic_partitions is None or command.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if command.subscribed_topic_names is None and command.subscribed_topic_regex is None:
        raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _refuse_blank(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(message)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def check_room(group: ConsumerGroup, member_id: str, members_max: int) -> None:
    if len(group.members) >= members_max and member_id not in group.members:
        raise ApiError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {members_max} members.",
        )


def sender(draft: Draft, command: ConsumerGroupHeartbeat, member_id: str) -> ConsumerMember:
    """The member that a heartbeat comes from: known, come back, or new and not in the group yet."""
    group = draft.group
    if command.instance_id is not None:
        known = group.static_member(command.instance_id)
        if command.member_epoch == JOIN_EPOCH and known is not None:
            if known.classic is None:
                _check_released(known, member_id, command.instance_id)
            return take_over(draft, known, member_id)
        if command.member_epoch != JOIN_EPOCH:
            member = check_instance(known, member_id, command.instance_id)
            check_epoch(member, command.member_epoch, command.topic_partitions)
            return member
    if command.member_epoch == JOIN_EPOCH:
        # Whoever joins has no partitions, whatever it had before: it may go on in its epoch.
        return group.members.get(member_id) or ConsumerMember(member_id=member_id)
    member = group.member(member_id)
    check_epoch(member, command.member_epoch, command.topic_partitions)
    return member


def check_instance(known: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """The static member with this instance id, which must have this member id."""
    if known is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {known.member_id}.",
        )
    return known


def _check_released(known: ConsumerMember, member_id: str, instance_id: str) -> None:
    if known.member_epoch != STATIC_LEAVE_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by member {known.member_id}.",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Partitions | None) -> None:
    """FENCED_MEMBER_EPOCH unless the member is in its epoch, or in the one before it with nothing that it must not
    have: then the answer that told it of its epoch was lost."""
    if epoch == member.member_epoch:
        return
    is_previous = epoch < member.member_epoch and epoch == member.previous_member_epoch
    if is_previous and owned is not None and is_subset(map_of(owned), member.assigned):
        return
    relation = "greater" if epoch > member.member_epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def take_over(draft: Draft, known: ConsumerMember, member_id: str) -> ConsumerMember:
    """A static member is there again, mostly under another id: it gets everything that the old one has. Under its own
    id it is the same member, of which nothing goes."""
    group_id = draft.group.group_id
    successor = replace(known, member_id=member_id, member_epoch=0, previous_member_epoch=0)
    if member_id == known.member_id:
        draft.write(successor.possession(group_id))
        return successor
    target = sorted_partitions(draft.group.target_of(known.member_id))
    write_gone(draft, known.member_id)
    draft.write(successor.description(group_id))
    draft.write(TargetMemberRecord(group_id=group_id, member_id=member_id, partitions=target))
    draft.write(successor.possession(group_id))
    return successor


def write_gone(draft: Draft, member_id: str) -> None:
    """Tombstones for everything about a member, what it has first."""
    group_id = draft.group.group_id
    draft.write(CurrentMemberRecord(group_id=group_id, member_id=member_id, gone=True))
    draft.write(TargetMemberRecord(group_id=group_id, member_id=member_id, gone=True))
    draft.write(ConsumerMemberRecord(group_id=group_id, member_id=member_id, gone=True))


def described(member: ConsumerMember, command: ConsumerGroupHeartbeat) -> ConsumerMember:
    """The member as it describes itself now; what it does not mention stays."""
    names, pattern = command.subscribed_topic_names, command.subscribed_topic_regex
    timeout_ms = command.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if command.instance_id is None else command.instance_id,
        rack_id=member.rack_id if command.rack_id is None else command.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        server_assignor=member.server_assignor if command.server_assignor is None else command.server_assignor,
        subscribed_topic_names=member.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        subscribed_topic_regex=member.subscribed_topic_regex if pattern is None else pattern or None,
        client_id=command.client_id,
        client_host=command.client_host,
        classic=None,
    )
