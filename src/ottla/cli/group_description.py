"""What `ottla group describe` gathers about a group: members, offsets and lag in one picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ottla.client.cluster import Cluster
from ottla.client.errors import NotFoundError
from ottla.client.group_descriptions import GroupDescription, GroupMember
from ottla.client.groups import GroupAdmin
from ottla.client.metadata import NO_LEADER
from ottla.client.offsets import LATEST, list_offsets
from ottla.model.ids import TopicPartition

Row = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """How far a group is in one partition. None where nobody can say."""

    partition: TopicPartition
    committed: int | None
    end: int | None
    owner: GroupMember | None
    metadata: str = ""

    @property
    def lag(self) -> int | None:
        """How many offsets are left; never negative, since the end is asked for after the offset."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPicture:
    """A group as `ottla group describe` shows it."""

    group: GroupDescription
    coordinator: str
    progress: tuple[PartitionProgress, ...]

    @property
    def lag(self) -> int:
        return sum(entry.lag or 0 for entry in self.progress)

    def state(self) -> Row:
        """The group in a few lines."""
        group = self.group
        epochs: Row = {} if group.epoch is None else {"epoch": group.epoch, "assignment epoch": group.assignment_epoch}
        return {
            "group": group.group_id,
            "type": group.type.value,
            "state": group.state,
            "coordinator": self.coordinator,
            "assignor": group.assignor or None,
            **epochs,
            "members": len(group.members),
            "lag": self.lag,
        }

    def offset_rows(self) -> list[Row]:
        """A row for each partition that the group has an offset in, or a member for."""
        return [
            {
                "topic": entry.partition.topic,
                "partition": entry.partition.partition,
                "committed": entry.committed,
                "end": entry.end,
                "lag": entry.lag,
                "member": None if entry.owner is None else entry.owner.member_id,
                "host": None if entry.owner is None else entry.owner.host,
                "client": None if entry.owner is None else entry.owner.client_id,
            }
            for entry in self.progress
        ]

    def member_rows(self) -> list[Row]:
        """A row for each member."""
        return [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "host": member.host,
                "client": member.client_id,
                "protocol": member.protocol,
                "epoch": member.epoch,
                "partitions": len(member.assigned),
                "assignment": assignment_text(member.assigned),
                "target": None if member.target in (None, member.assigned) else assignment_text(member.target or ()),
            }
            for member in self.group.members
        ]

    def as_json(self) -> Row:
        """Everything, for programs."""
        return {
            **{key.replace(" ", "_"): value for key, value in self.state().items()},
            "coordinator": self.group.coordinator,
            "protocol_type": self.group.protocol_type,
            "offsets": [
                {**row, "metadata": entry.metadata}
                for row, entry in zip(self.offset_rows(), self.progress, strict=True)
            ],
            "members": [_member_json(member) for member in self.group.members],
        }


def assignment_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions as `--topic` takes them: `orders:0,1 payments:3`."""
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return " ".join(f"{name}:{','.join(map(str, numbers))}" for name, numbers in topics.items())


def describe_group(cluster: Cluster, group_id: str) -> GroupPicture:
    """Ask for everything there is to know about a group."""
    admin = GroupAdmin(cluster)
    group = admin.describe_group(group_id)
    committed = admin.fetch_offsets(group_id)
    owners = {partition: member for member in group.members for partition in member.assigned}
    partitions = sorted(committed.keys() | owners.keys())
    ends = end_offsets(cluster, partitions)
    progress = tuple(
        PartitionProgress(
            partition=partition,
            committed=committed[partition].offset if partition in committed else None,
            end=ends.get(partition),
            owner=owners.get(partition),
            metadata=committed[partition].metadata if partition in committed else "",
        )
        for partition in partitions
    )
    brokers = {broker.node_id: str(broker) for broker in cluster.brokers()}
    coordinator = brokers.get(group.coordinator, f"broker {group.coordinator}")
    return GroupPicture(group=group, coordinator=coordinator, progress=progress)


def end_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where each partition ends; those that are gone or have no leader are left out."""
    led: dict[TopicPartition, int] = {}
    topics: dict[str, set[int]] = {}
    for partition in partitions:
        if partition.topic not in topics:
            topics[partition.topic] = _led(cluster, partition.topic)
        if partition.partition in topics[partition.topic]:
            led[partition] = LATEST
    return {partition: at.offset for partition, at in list_offsets(cluster, led).items()} if led else {}


def _led(cluster: Cluster, topic: str) -> set[int]:
    try:
        return {entry.partition for entry in cluster.topic(topic).partitions if entry.leader != NO_LEADER}
    except NotFoundError:
        return set()  # deleted, while its offsets are still kept


def _member_json(member: GroupMember) -> Row:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "host": member.host,
        "client": member.client_id,
        "protocol": member.protocol,
        "epoch": member.epoch,
        "subscribed": list(member.subscribed),
        "subscribed_regex": member.subscribed_regex,
        "assignment": [partition._asdict() for partition in member.assigned],
        "target": None if member.target is None else [partition._asdict() for partition in member.target],
    }
