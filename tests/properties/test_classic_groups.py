"""Classic groups under any interleaving of joins, syncs, heartbeats, leaves, timeouts, failed writes and restarts."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.core.coordination import Command
from ottla.core.groups.classic_commands import Heartbeat, JoinedGroup, LeaveGroup, LeavingMember, SyncedGroup, SyncGroup
from ottla.core.groups.classic_group import COMPLETING, EMPTY, PREPARING, STABLE, ClassicGroup
from ottla.core.groups.classic_rebalance import NEW_MEMBER_JOIN_TIMEOUT_MS
from ottla.core.groups.records import ClassicGroupRecord
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.coordinator import REBALANCE_MS, SESSION_MS, Coordinator, join, offers

DELAY_MS = 3000
numbers = st.integers(min_value=0, max_value=1_000_000)


class ClassicGroups(RuleBasedStateMachine):
    """Clients believe what they were told; the leader of a generation assigns to each member `generation:its id`."""

    def __init__(self) -> None:
        super().__init__()
        self.c = Coordinator({"group.max.size": "4"}, delay_ms=DELAY_MS)
        self.asked: dict[int, Command[Any]] = {}
        self.digested: set[int] = set()
        self.known: dict[str, tuple[int, str | None]] = {}
        """Member ids that clients have, with the generation and the instance id."""
        self.lost_writes = False

    def send(self, command: Command[Any]) -> None:
        ticket = self.c.send(command)
        self.c.append_error = None
        self.asked[ticket] = command
        self.digest()

    def digest(self) -> None:
        """Clients read the answers that have come."""
        for ticket in sorted(self.c.answers.keys() - self.digested):
            self.digested.add(ticket)
            answer, command = self.c.answers[ticket], self.asked.get(ticket)
            if isinstance(answer, JoinedGroup):
                self.read_joined(command, answer)
            elif isinstance(answer, SyncedGroup) and answer.error_code is ErrorCode.NONE:
                assert isinstance(command, SyncGroup)
                generation, _, _who = answer.assignment.decode().partition(":")
                assert generation in ("", str(command.generation_id)), "an assignment of another generation"

    def read_joined(self, command: Any, answer: JoinedGroup) -> None:
        if answer.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.known[answer.member_id] = (-1, None)
        elif answer.error_code is ErrorCode.NONE:
            self.known[answer.member_id] = (answer.generation_id, command.group_instance_id)
            assert bool(answer.members) <= (answer.leader == answer.member_id)

    def pick(self, number: int) -> tuple[str, int, str | None]:
        ids = sorted(self.known)
        member_id = ids[number % len(ids)]
        return (member_id, *self.known[member_id])

    def group(self) -> ClassicGroup | None:
        group = self.c.shard.state.groups.get("g")
        assert group is None or isinstance(group, ClassicGroup)
        return group

    # What clients do.

    @initialize(size=st.integers(0, 3), is_static=st.booleans())
    def begin_with_a_stable_group(self, size: int, is_static: bool) -> None:
        for number in range(size):
            self.come(old=True, instance="ijk"[number] if is_static else None, metadata=b"")
        self.wait(size * DELAY_MS)
        if size:
            self.everybody_does_what_is_next()

    @rule(old=st.booleans(), instance=st.sampled_from([None, None, "i", "j"]), metadata=st.sampled_from([b"", b"x"]))
    def come(self, old: bool, instance: str | None, metadata: bytes) -> None:
        protocols = offers("range", "sticky", metadata=metadata)
        self.send(join(group_instance_id=instance, member_id_required=not old, protocols=protocols))

    @precondition(lambda self: self.known)
    @rule(number=numbers, names=st.sampled_from([("range", "sticky"), ("sticky", "range"), ("sticky",), ("other",)]))
    def rejoin(self, number: int, names: tuple[str, ...]) -> None:
        member_id, _, instance = self.pick(number)
        self.send(join(member_id, group_instance_id=instance, protocols=offers(*names)))

    @precondition(lambda self: self.known)
    @rule(number=numbers, left_out=st.booleans())
    def sync(self, number: int, left_out: bool) -> None:
        member_id, generation, instance = self.pick(number)
        members = sorted(self.known)[left_out:]
        assigned = tuple((other, f"{generation}:{other}".encode()) for other in members)
        self.send(
            SyncGroup(
                group_id="g",
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                assignments=assigned,
            )
        )

    @precondition(lambda self: self.known)
    @rule()
    def everybody_does_what_is_next(self) -> None:
        """The way to a stable group, which chance alone would seldom find."""
        group = self.group()
        for member_id in list(group.members) if group is not None else ():
            if group is not None and group.state is PREPARING:
                self.send(join(member_id, protocols=offers("range", "sticky")))
            elif group is not None and member_id in self.known:
                self.sync(sorted(self.known).index(member_id), left_out=False)

    @precondition(lambda self: self.known)
    @rule(number=numbers)
    def beat(self, number: int) -> None:
        member_id, generation, instance = self.pick(number)
        self.send(Heartbeat("g", generation, member_id, instance))

    @precondition(lambda self: self.known)
    @rule(number=numbers, administrator=st.booleans())
    def leave(self, number: int, administrator: bool) -> None:
        member_id, _, instance = self.pick(number)
        leaving = LeavingMember("" if administrator and instance else member_id, instance)
        self.send(LeaveGroup(group_id="g", members=(leaving,)))

    # What happens to the coordinator.

    @rule(duration_ms=st.sampled_from([1, DELAY_MS, SESSION_MS // 2, SESSION_MS, REBALANCE_MS // 3, REBALANCE_MS]))
    def wait(self, duration_ms: int) -> None:
        self.c.pass_ms(duration_ms)
        self.digest()

    @rule()
    def restart(self) -> None:
        self.c.append_error = None
        self.c.reload()
        self.digest()
        self.lost_writes = False

    @rule()
    def lose_the_next_write(self) -> None:
        self.c.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        self.lost_writes = True

    # What is true at any time.

    @invariant()
    def every_open_ticket_is_that_of_one_member(self) -> None:
        group = self.group()
        members = group.members.values() if group is not None else ()
        tickets = [t for member in members for t in (member.join_ticket, member.sync_ticket) if t is not None]
        assert sorted(tickets) == sorted(self.c.open)
        assert all(self.c.now_ms - since_ms <= REBALANCE_MS for since_ms in self.c.open.values())

    @invariant()
    def what_is_counted_is_what_there_is(self) -> None:
        group = self.group()
        if group is None:
            return
        members = group.members.values()
        assert group.waiting_joins == sum(member.join_ticket is not None for member in members)
        assert group.static_members == {m.group_instance_id: m.member_id for m in members if m.group_instance_id}
        names = [protocol.name for member in members for protocol in member.protocols]
        assert group.supported == {name: names.count(name) for name in set(names)}
        assert group.pending_sync <= group.members.keys()
        assert not group.pending.keys() & group.members.keys()
        assert group.replacement is None

    @invariant()
    def who_waits_for_what_fits_the_state(self) -> None:
        group = self.group()
        if group is None:
            return
        assert (group.state is EMPTY) <= (not group.members)
        assert group.leader in group.members if group.members else group.leader is None
        for member in group.members.values():
            assert member.join_ticket is None or group.state is PREPARING
            assert member.sync_ticket is None or group.state is COMPLETING
            if group.state is STABLE:
                generation = member.assignment.decode().partition(":")[0]
                assert generation in ("", str(group.generation))

    @invariant()
    def the_log_gives_the_recorded_state(self) -> None:
        group, records = self.group(), self.c.records(ClassicGroupRecord)
        ends = [number for number, record in enumerate(records) if record.gone]
        if ends:  # An empty group is removed after a while; one of that name begins anew.
            records = records[ends[-1] + 1 :]
        generations = [record.generation for record in records]
        assert generations == sorted(generations)
        if not records:
            assert group is None or group.state is not STABLE
            return
        again = ClassicGroup.from_record(records[-1])
        assignments = {member.member_id: member.assignment for member in again.members.values()}
        assert again.to_record(again.state_timestamp_ms, assignments) == records[-1]
        if group is not None and group.state is STABLE:
            live = {member.member_id: member.assignment for member in group.members.values()}
            found = group.to_record(group.state_timestamp_ms, live)
            assert (found.generation, found.leader, found.protocol) == (
                again.generation,
                again.leader,
                again.protocol_name,
            )
            assert sorted(found.members) == sorted(records[-1].members)
        elif group is not None and group.state is EMPTY and not self.lost_writes:
            assert (again.state, again.generation) == (EMPTY, group.generation)

    def teardown(self) -> None:
        """When everybody is silent nobody waits, and the group becomes empty."""
        self.c.append_error = None
        self.c.pass_ms(NEW_MEMBER_JOIN_TIMEOUT_MS + 4 * REBALANCE_MS)
        assert not self.c.open
        group = self.group()
        assert group is None or group.state is EMPTY
        assert group is None or not group.pending


ClassicGroups.TestCase.settings = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestClassicGroups = ClassicGroups.TestCase
