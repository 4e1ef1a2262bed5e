"""A group coordinator on a log in memory, for tests: it plays the runtime, and the time is what the test says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from ottla.core.controller.image import MetadataImage
from ottla.core.coordination import Command, Outcome, Ticket
from ottla.core.groups.classic_commands import Heartbeat, JoinedGroup, JoinGroup, LeaveGroup, LeavingMember, SyncGroup
from ottla.core.groups.classic_group import ClassicGroup
from ottla.core.groups.records import ClassicProtocol, GroupRecord
from ottla.core.groups.shard import GroupShard
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode

START_MS = 1_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000


def offers(*names: str, metadata: bytes = b"") -> tuple[ClassicProtocol, ...]:
    return tuple(ClassicProtocol(name, metadata) for name in names)


RANGE = offers("range")


class Coordinator:
    """One shard. `answers` has what became of each ticket; an answer that comes twice is an error."""

    def __init__(self, configs: Mapping[str, str] | None = None, *, delay_ms: int = 0) -> None:
        texts = {"group.initial.rebalance.delay.ms": str(delay_ms), **(configs or {})}
        self.config = BrokerConfig.from_properties(texts)
        self.image = MetadataImage()
        self.now_ms = START_MS
        self.log: list[tuple[GroupRecord, int]] = []
        self.answers: dict[Ticket, Any] = {}
        self.open: dict[Ticket, int] = {}
        """Tickets without an answer, with the time at which they came."""
        self.append_error: ErrorCode | None = None
        self._uuids = 0
        self._tickets = 0
        self.shard = self._new_shard()
        self._perform(self.shard.loaded(self.now_ms))

    def _new_shard(self) -> GroupShard:
        return GroupShard(lambda: self.config, lambda: self.image, self._new_uuid)

    def _new_uuid(self) -> UUID:
        self._uuids += 1
        return UUID(int=self._uuids)

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.shard.state.groups[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    def send(self, command: Command[Any]) -> Ticket:
        """Hand in a command; an ApiError is an answer too."""
        self._tickets += 1
        ticket = self._tickets
        self.open[ticket] = self.now_ms
        try:
            outcome = self.shard.decide(command, ticket, self.now_ms)
        except ApiError as error:
            self._answer(ticket, error)
        else:
            self._perform(outcome)
        return ticket

    def ask(self, command: Command[Any]) -> Any:
        """The answer to a command that is answered at once."""
        return self.answers[self.send(command)]

    def code(self, command: Command[Any]) -> ErrorCode:
        """How a command that is answered at once went."""
        return code_of(self.ask(command))

    def pass_ms(self, duration_ms: int) -> None:
        """Let time pass, with ticks where they are due."""
        until_ms = self.now_ms + duration_ms
        while (deadline_ms := self.shard.next_deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self._perform(self.shard.tick(self.now_ms))
        self.now_ms = until_ms

    def reload(self) -> None:
        """Replay the log into a new shard; who waited is told to look for the coordinator."""
        for ticket in list(self.open):
            self._answer(ticket, ApiError(ErrorCode.NOT_COORDINATOR))
        self.shard = self._new_shard()
        for record, producer_id in self.log:
            self.shard.replay(record, producer_id)
        self._perform(self.shard.loaded(self.now_ms))

    def records(self, kind: type[Any]) -> list[Any]:
        return [record for record, _producer_id in self.log if isinstance(record, kind)]

    def _perform(self, outcome: Outcome[GroupRecord]) -> None:
        if outcome.records and self.append_error is not None:
            error = self.append_error
            if outcome.not_written is None:
                outcome = Outcome(answers=[(ticket, ApiError(error)) for ticket, _ in outcome.answers])
            else:
                outcome = outcome.not_written(error, self.now_ms)
                outcome.records.clear()
        for record in outcome.records:
            self.log.append((record, outcome.producer_id))
            self.shard.replay(record, outcome.producer_id)
        for ticket, answer in outcome.answers:
            self._answer(ticket, answer)

    def _answer(self, ticket: Ticket, answer: Any) -> None:
        assert ticket not in self.answers, f"{ticket} is answered twice"
        del self.open[ticket]
        self.answers[ticket] = answer

    # What members of group g do.

    def join_later(self, member_id: str = "", **fields: Any) -> Ticket:
        return self.send(join(member_id, **fields))

    def joined(self, ticket: Ticket) -> JoinedGroup:
        answer = self.answers[ticket]
        assert isinstance(answer, JoinedGroup)
        return answer

    def new_member(self, **fields: Any) -> tuple[str, Ticket]:
        """Get a member id and join with it."""
        first = self.ask(join(**fields))
        assert first.error_code is ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.join_later(first.member_id, **fields)

    def stable(self, size: int = 2, **fields: Any) -> list[str]:
        """A stable group with this many members; the first one leads. Their assignments are their ids."""
        ids = [self.new_member(**fields)[0] for _ in range(size)]
        self.pass_ms(0)
        self.sync_all()
        return ids

    def sync_all(self) -> None:
        group = self.group()
        leader = group.leader
        assert leader is not None
        for member_id in sorted(group.members, key=leader.__eq__):
            assignments = [(other, other.encode()) for other in group.members] if member_id == leader else []
            self.send(self.sync(member_id, *assignments))
        assert group.state_name == "Stable"

    def sync(self, member_id: str, *assignments: tuple[str, bytes], **fields: Any) -> SyncGroup:
        fields = {"group_id": "g", "generation_id": self.group().generation, **fields}
        return SyncGroup(member_id=member_id, assignments=assignments, **fields)

    def beat(self, member_id: str, generation: int | None = None, instance_id: str | None = None) -> ErrorCode:
        number = self.group().generation if generation is None else generation
        return self.code(Heartbeat("g", number, member_id, instance_id))

    def leave(self, *members: str | LeavingMember) -> list[ErrorCode]:
        leaving = tuple(LeavingMember(member) if isinstance(member, str) else member for member in members)
        return [left.error_code for left in self.ask(LeaveGroup(group_id="g", members=leaving))]


def join(member_id: str = "", **fields: Any) -> JoinGroup:
    given = {
        "group_id": "g",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": RANGE,
        "client_id": "c",
        "client_host": "/127.0.0.1",
        **fields,
    }
    return JoinGroup(member_id=member_id, **given)


def code_of(answer: Any) -> ErrorCode:
    """What an answer says about how it went."""
    if isinstance(answer, ErrorCode):
        return answer
    if isinstance(answer, ApiError):
        return answer.code
    code = getattr(answer, "error_code", ErrorCode.NONE)
    assert isinstance(code, ErrorCode)
    return code
