"""A member of a classic group."""

from __future__ import annotations

from typing import Final

from ottla.core.coordination import Ticket
from ottla.core.groups.records import ClassicMemberRecord, ClassicProtocol

NEVER_MS: Final = 2**63 - 1


class ClassicMember:
    """Who it is and what it offers, what it was assigned, and which of its requests wait for an answer."""

    __slots__ = (
        "armed_ms",
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "group_instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: tuple[ClassicProtocol, ...],
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        self.is_new = False
        """Has never been told that it is a member, so it sends no heartbeats."""
        self.deadline_ms = NEVER_MS
        """When it is given up unless it is heard of before."""
        self.armed_ms = NEVER_MS
        """When its timer is due: not after the deadline, but often before it, and then it is set again."""

    @classmethod
    def from_record(cls, record: ClassicMemberRecord, protocol: str | None) -> ClassicMember:
        """As it was recorded; of its protocols only the one in use is known then."""
        rebalance_timeout_ms = record.rebalance_timeout_ms
        return cls(
            record.member_id,
            record.group_instance_id,
            record.client_id,
            record.client_host,
            record.session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
            record.session_timeout_ms,
            (ClassicProtocol(protocol or "", record.subscription),),
            record.assignment,
        )

    def to_record(self, protocol: str, assignment: bytes) -> ClassicMemberRecord:
        return ClassicMemberRecord(
            self.member_id,
            self.group_instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol) or b"",
            assignment,
        )

    @property
    def excused(self) -> bool:
        """Waits for the others, so that no heartbeat is expected. Somebody new is not waited for without end."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol: str | None) -> bytes | None:
        """What it says in this protocol; None where it does not offer it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return None
