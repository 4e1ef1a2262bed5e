"""One member of a classic group: joins, learns its partitions, says that it is alive, leaves.

Theory of operation. A generation of a group begins when all its members have joined: each JoinGroup waits at the
coordinator until then. One member is the leader; it learns who wants what, shares the partitions out (by range) and
sends that with its SyncGroup, and every member's SyncGroup answers with its own share. From then on the member must
heartbeat; an answer of REBALANCE_IN_PROGRESS says that a new generation begins, and everybody joins again.

Nothing happens between calls: whoever holds the member calls `heartbeat` often enough. What must stay true: a member
id, once given, is sent with every later request until the coordinator says that it does not know it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.coordinators import CoordinatorKind, Coordinators
from ottla.client.deadline import Backoff, Deadline
from ottla.client.errors import BrokerError, NotFoundError, broker_error, error_code
from ottla.client.group_descriptions import CONSUMER_PROTOCOL_TYPE, read_assignment, read_subscription
from ottla.client.group_offsets import by_topic, commit_request, send_commit
from ottla.client.range_assignment import assign_ranges
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol import TopicPartition as TopicPartitions
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ottla.wire.schema import encode

T = TypeVar("T")

RANGE: Final = "range"
_VERSION: Final = 0
_PREFIX: Final = b"\x00\x00"
_SEVERAL_LEAVE_SINCE: Final = 3
_JOIN_MARGIN_MS: Final = 10_000
"""How much longer than the rebalance time-out a join may take: the coordinator's delay before a first generation."""
_LOST_CODES: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)
_REJOIN_CODES: Final = _LOST_CODES | {ErrorCode.REBALANCE_IN_PROGRESS}


class RejoinError(BrokerError):
    """The generation is over. `lost` says that the group went on without this member."""

    @property
    def lost(self) -> bool:
        return self.code in _LOST_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSettings:
    """Kafka's settings of a group member, with Kafka's defaults."""

    group_id: str
    topics: tuple[str, ...]
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 60_000
    heartbeat_interval_ms: int = 3_000


class GroupMembership:
    """A place in a group, over a cluster that somebody else closes."""

    def __init__(self, cluster: Cluster, settings: MembershipSettings) -> None:
        self.settings = settings
        self.member_id = ""
        self.generation = -1
        self._over = False
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorKind.GROUP)
        self._counts: dict[str, int] = {}
        self._heartbeat_at = 0.0

    @property
    def joined(self) -> bool:
        """Whether it is in a generation, as far as it knows."""
        return self.generation >= 0 and not self._over

    @property
    def may_commit(self) -> bool:
        """Whether its generation is still the group's: while the next one gathers, offsets may yet be committed."""
        return self.generation >= 0

    @property
    def leads(self) -> bool:
        """Whether it shares the partitions out."""
        return bool(self._counts)

    def join(self) -> tuple[TopicPartition, ...]:
        """Take part in the next generation; gives this member's partitions."""
        margin_ms = self._cluster.settings.api_timeout_ms + self.settings.rebalance_timeout_ms
        backoff = Backoff(self._cluster.settings, Deadline(margin_ms))
        while True:
            try:
                return self._join_once()
            except RejoinError as error:
                if error.code is not ErrorCode.MEMBER_ID_REQUIRED and not backoff.wait():
                    raise

    def heartbeat_due_ms(self) -> int:
        """How long `heartbeat` may still wait."""
        return max(int((self._heartbeat_at - time.monotonic()) * 1000), 0)

    def heartbeat(self) -> None:
        """Say that it is alive; RejoinError when it has to join again."""
        request = HeartbeatRequest(
            group_id=self.settings.group_id, generation_id=self.generation, member_id=self.member_id
        )

        def attempt(connection: Connection) -> None:
            self._check(connection.call(request, HeartbeatResponse).error_code, "heartbeat")

        self._call(attempt)
        self._heartbeat_at = time.monotonic() + self.settings.heartbeat_interval_ms / 1000

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit as this member; RejoinError if its generation is over."""
        request = commit_request(self.settings.group_id, offsets, member_id=self.member_id, generation=self.generation)

        def attempt(connection: Connection) -> None:
            for code in send_commit(connection, request).values():
                self._check(code, "commit")

        self._call(attempt)

    def leave(self) -> None:
        """Go, so that the others get the partitions at once and not after the session time-out."""
        if not self.member_id:
            return
        group_id, member_id = self.settings.group_id, self.member_id

        def attempt(connection: Connection) -> None:
            version = connection.version_of(LeaveGroupRequest)
            several = version >= _SEVERAL_LEAVE_SINCE
            request = LeaveGroupRequest(
                group_id=group_id,
                member_id="" if several else member_id,
                members=[MemberIdentity(member_id=member_id)] if several else [],
            )
            answer = connection.receive(connection.send(request, LeaveGroupResponse, version=version))
            if error_code(answer.error_code) not in (ErrorCode.NONE, *_LOST_CODES):
                raise broker_error(answer.error_code, f"cannot leave group {group_id!r}")

        self._call(attempt)
        self.member_id, self.generation = "", -1

    def topics_changed(self) -> bool:
        """For the leader: whether the topics that were shared out have other partitions now."""
        return self.leads and self._partition_counts(self._counts) != self._counts

    # The two steps of a join

    def _join_once(self) -> tuple[TopicPartition, ...]:
        self.generation = -1
        joined = self._call(self._send_join)
        self.member_id = joined.member_id
        # A leader that came back may be told that its earlier assignment still holds.
        leading = joined.leader == joined.member_id and not joined.skip_assignment
        shares = self._shares(joined) if leading else []
        if not leading:
            self._counts = {}
        request = SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=shares,
        )

        def sync(connection: Connection) -> SyncGroupResponse:
            answer = connection.call(request, SyncGroupResponse, timeout_ms=self._join_ms)
            self._check(answer.error_code, "join")
            return answer

        answer = self._call(sync)
        self.generation, self._over = joined.generation_id, False
        self._heartbeat_at = time.monotonic() + self.settings.heartbeat_interval_ms / 1000
        return read_assignment(bytes(answer.assignment))

    def _send_join(self, connection: Connection) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=list(self.settings.topics))
        request = JoinGroupRequest(
            group_id=self.settings.group_id,
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.rebalance_timeout_ms,
            member_id=self.member_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=RANGE, metadata=encode(subscription, _VERSION, _PREFIX))],
        )
        answer = connection.call(request, JoinGroupResponse, timeout_ms=self._join_ms)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            raise RejoinError(ErrorCode.MEMBER_ID_REQUIRED, "join once more, with the member id")
        self._check(answer.error_code, "join")
        return answer

    @property
    def _join_ms(self) -> int:
        return self.settings.rebalance_timeout_ms + _JOIN_MARGIN_MS

    def _shares(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        wanted = {member.member_id: read_subscription(bytes(member.metadata)) for member in joined.members}
        self._counts = self._partition_counts({topic for topics in wanted.values() for topic in topics})
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(partitions))
            for member_id, partitions in assign_ranges(wanted, self._counts).items()
        ]

    def _partition_counts(self, topics: Mapping[str, int] | set[str]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for topic in topics:
            self._cluster.forget(topic)
            try:
                counts[topic] = len(self._cluster.topic(topic).partitions)
            except NotFoundError:
                counts[topic] = 0
        return counts

    def _call(self, attempt: Callable[[Connection], T]) -> T:
        """Ask the coordinator, over a connection on which no answer is owed.

        One is owed where an interrupt ended an earlier call in the middle; it would be taken for the answer to this.
        """

        def clean(connection: Connection) -> T:
            if connection.in_flight:
                connection.close()
                connection = self._cluster.connection(self._coordinators.node_id(self.settings.group_id))
            return attempt(connection)

        return self._coordinators.call(self.settings.group_id, clean)

    def _check(self, number: int, verb: str) -> None:
        if number == ErrorCode.NONE:
            return
        code = error_code(number)
        subject = f"cannot {verb} as a member of group {self.settings.group_id!r}"
        refused = broker_error(number, subject, _ADVICE.get(code))
        if code not in _REJOIN_CODES:
            raise refused
        self._over = True
        if code in _LOST_CODES:
            self.generation = -1
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        raise RejoinError(code, str(refused))


_ADVICE: Final = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "its members share partitions out in another way than `range`, "
    "or are no consumers; choose another group",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has as many members as the broker allows",
}


def _assignment(partitions: Sequence[TopicPartition]) -> bytes:
    topics = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(partitions).items()]
    return encode(ConsumerProtocolAssignment(assigned_partitions=topics), _VERSION, _PREFIX)
