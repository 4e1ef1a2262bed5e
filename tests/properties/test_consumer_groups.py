"""Whatever consumers, topics, time and the coordinator do: no partition has two owners, epochs only grow, and a group
whose members are all heard of gets to its target.

Clients here are slow and unlucky: answers get lost, partitions are given up late, records are not written. They keep
to what real clients promise: who was not answered says everything again, who is fenced drops what it has and joins
anew, and who is not answered for long drops what it has.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.core.groups.classic_commands import Heartbeat, LeaveGroup, LeavingMember, SyncGroup
from ottla.core.groups.consumer_commands import ConsumerGroupHeartbeat, MemberHeard
from ottla.core.groups.consumer_group import ConsumerGroup
from ottla.core.groups.embedded_protocol import parse_assignment
from ottla.core.groups.records import ClassicProtocol
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.blobs import subscription
from tests.unit.core.groups.consumers import REBALANCE_MS, Topics
from tests.unit.core.groups.coordinator import code_of, join

SLOTS = 5
PATIENCE_MS = 20_000
"""How long a client goes on without an answer, and how late it gives partitions back at most."""
SESSION_MS = 45_000
SUBSCRIPTIONS = (("t",), ("t", "u"), ("u", "v"), ("t", "u", "v"))


class Client:
    """What every client has: `working` is what it consumes, rightly or not."""

    def __init__(self, coordinator: Topics, slot: int) -> None:
        self.coordinator = coordinator
        self.slot = slot
        self.lives = 0
        self.member_id = ""
        self.topics: tuple[str, ...] = ("t",)
        self.alive = False
        self.epoch = 0
        self.working: set[tuple[UUID, int]] = set()
        self.answered_ms = 0

    def die(self) -> None:
        """The process is gone: it consumes nothing, and nobody is told."""
        self.alive = False
        self.working = set()

    @property
    def patient(self) -> bool:
        return self.coordinator.now_ms - self.answered_ms < PATIENCE_MS

    def begin(self, topics: tuple[str, ...]) -> None:
        self.lives += 1
        self.alive = True
        self.member_id = f"m{self.slot}-{self.lives}"
        self.topics = topics
        self.answered_ms = self.coordinator.now_ms
        self.start_anew()

    def start_anew(self) -> None:
        self.epoch = 0
        self.working = set()

    def act(self, lost: bool) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def give_back(self) -> None:
        """Stop to consume what it shall not have any more."""


class NewClient(Client):
    """Speaks the consumer protocol. `wanted` is what it was told to have."""

    def __init__(self, coordinator: Topics, slot: int, instance_id: str | None) -> None:
        super().__init__(coordinator, slot)
        self.instance_id = instance_id
        self.wanted: set[tuple[UUID, int]] = set()
        self.tells_all = True
        self.late_ms = 0

    def start_anew(self) -> None:
        super().start_anew()
        self.wanted = set()
        self.tells_all = True

    def command(self, **fields: Any) -> ConsumerGroupHeartbeat:
        return ConsumerGroupHeartbeat(
            group_id="g", member_id=self.member_id, instance_id=self.instance_id, client_id="c", **fields
        )

    def act(self, lost: bool) -> None:
        everything: dict[str, Any] = {}
        if self.tells_all:
            everything = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": self.topics}
        owned = tuple((topic_id, (number,)) for topic_id, number in self.working)
        answer = self.coordinator.ask(self.command(member_epoch=self.epoch, topic_partitions=owned, **everything))
        if lost:
            self.tells_all = True
        elif isinstance(answer, MemberHeard):
            self.take(answer)
        elif code_of(answer) in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.start_anew()
        elif code_of(answer) in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            self.die()
        else:
            assert code_of(answer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
            self.tells_all = True

    def take(self, answer: MemberHeard) -> None:
        self.answered_ms = self.coordinator.now_ms
        self.tells_all = False
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.wanted = {(topic_id, number) for topic_id, numbers in answer.assignment for number in numbers}
            if not self.working <= self.wanted:
                self.late_ms = self.coordinator.now_ms
            self.working |= self.wanted

    @property
    def patient(self) -> bool:
        return super().patient and (self.working <= self.wanted or self.coordinator.now_ms - self.late_ms < PATIENCE_MS)

    def give_back(self) -> None:
        self.working &= self.wanted

    def leave(self) -> None:
        self.working = set()
        if self.epoch > 0:
            self.coordinator.ask(self.command(member_epoch=-1 if self.instance_id is None else -2))
        self.alive = False


class ClassicClient(Client):
    """Speaks the classic protocol and rebalances cooperatively."""

    def act(self, lost: bool) -> None:
        code = self.coordinator.code(Heartbeat("g", self.epoch, self.member_id)) if self.epoch else None
        if lost:
            return
        if code is ErrorCode.NONE:
            self.answered_ms = self.coordinator.now_ms
        elif code in (None, ErrorCode.REBALANCE_IN_PROGRESS):
            self.join()
        else:
            self.start_anew()

    def join(self) -> None:
        names = {topic.id: name for name, topic in self.coordinator.image.topics.items()}
        owned: dict[str, tuple[int, ...]] = {}
        for topic_id, number in self.working:
            if topic_id in names:
                owned[names[topic_id]] = (*owned.get(names[topic_id], ()), number)
        protocol = ClassicProtocol("cooperative-sticky", subscription(*self.topics, owned=owned))
        asked = join(self.member_id, protocols=(protocol,), session_timeout_ms=SESSION_MS)
        joined = self.coordinator.ask(asked)
        if code_of(joined) is not ErrorCode.NONE:
            if code_of(joined) is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                self.start_anew()
            return
        self.epoch = joined.generation_id
        synced = self.coordinator.ask(SyncGroup(group_id="g", generation_id=self.epoch, member_id=self.member_id))
        if code_of(synced) is ErrorCode.NONE:
            topics = self.coordinator.image.topics
            assigned = parse_assignment(synced.assignment) or ()
            self.working = {(topics[name].id, number) for name, numbers in assigned for number in numbers}
            self.answered_ms = self.coordinator.now_ms

    def leave(self) -> None:
        self.working = set()
        self.coordinator.ask(LeaveGroup(group_id="g", members=(LeavingMember(self.member_id),)))
        self.alive = False


class ConsumerGroups(RuleBasedStateMachine):
    """One group `g`; what becomes of it when everything happens in any order."""

    @initialize(classics=st.integers(0, 2), static=st.booleans())
    def begin(self, classics: int, static: bool) -> None:
        # Groups stay consumer groups: how classic groups rebalance is tested elsewhere.
        self.c = Topics({"group.consumer.migration.policy": "upgrade", "group.min.session.timeout.ms": "1"}, t=4, u=3)
        self.clients: list[Client] = [ClassicClient(self.c, slot) for slot in range(classics)]
        for slot in range(classics, SLOTS):
            self.clients.append(NewClient(self.c, slot, "static" if static and slot == SLOTS - 1 else None))
        self.epochs: dict[str, int] = {}
        first = self.clients[-1]
        first.begin(("t", "u"))
        first.act(lost=False)

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.c.shard.state.groups.get("g")
        return group if isinstance(group, ConsumerGroup) else None

    @rule(slot=st.integers(0, SLOTS - 1), topics=st.sampled_from(SUBSCRIPTIONS), lost=st.booleans())
    def joins(self, slot: int, topics: tuple[str, ...], lost: bool) -> None:
        client = self.clients[slot]
        if not client.alive and self.may_join(client):
            client.begin(topics)
            client.act(lost)

    def may_join(self, client: Client) -> bool:
        """An empty group would become a classic one."""
        return isinstance(client, NewClient) or (self.group is not None and not self.group.is_empty)

    @rule(slot=st.integers(0, SLOTS - 1), lost=st.booleans())
    def acts(self, slot: int, lost: bool) -> None:
        client = self.clients[slot]
        if client.alive and self.may_join(client):
            client.act(lost)

    @rule()
    def everybody_acts(self) -> None:
        for slot in range(SLOTS):
            self.acts(slot, False)

    @rule(slot=st.integers(0, SLOTS - 1))
    def gives_back(self, slot: int) -> None:
        self.clients[slot].give_back()

    @rule(slot=st.integers(0, SLOTS - 1), topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribes(self, slot: int, topics: tuple[str, ...]) -> None:
        client = self.clients[slot]
        client.topics = topics
        if isinstance(client, NewClient):
            client.tells_all = True

    @rule(slot=st.integers(0, SLOTS - 1))
    def leaves(self, slot: int) -> None:
        client = self.clients[slot]
        if client.alive and self.may_join(client):
            client.leave()

    @rule(slot=st.integers(0, SLOTS - 1))
    def dies(self, slot: int) -> None:
        self.clients[slot].die()

    @rule(duration_ms=st.sampled_from([1, 100, 300, 1_000, 9_000]))
    def time_passes(self, duration_ms: int) -> None:
        for client in self.clients:
            if client.alive and not client.patient:
                client.die()
        self.c.pass_ms(duration_ms)

    @rule(t=st.integers(0, 6), u=st.integers(0, 5), v=st.integers(0, 3))
    def topics_change(self, t: int, u: int, v: int) -> None:
        """Topics appear, grow or go."""
        counts = {}
        for name, count in (("t", t), ("u", u), ("v", v)):
            before = self.c.image.topics.get(name)
            if count and before is not None:
                count = max(count, len(before.partitions))
            if count:
                counts[name] = count
        self.c.set_topics(**counts)

    @rule()
    def coordinator_moves(self) -> None:
        before = self.group
        self.c.reload()
        if before is not None:
            after = self.group
            assert after is not None
            assert (after.members, after.target, after.epoch) == (before.members, before.target, before.epoch)
            assert after._owners == before._owners

    @rule()
    @precondition(lambda self: self.c.append_error is None)
    def log_fails(self) -> None:
        self.c.append_error = ErrorCode.COORDINATOR_NOT_AVAILABLE

    @rule()
    @precondition(lambda self: self.c.append_error is not None)
    def log_works_again(self) -> None:
        self.c.append_error = None

    @rule()
    def settles(self) -> None:
        """With everybody awake the group reaches its target, and all partitions are consumed."""
        self.c.append_error = None
        self.stay_awake(4)
        epoch = 0 if self.group is None else self.group.epoch
        self.stay_awake(8)
        group = self.group
        live = {client.member_id: client for client in self.clients if client.alive}
        if group is None or group.epoch != epoch or set(group.members) != set(live):
            return
        assert group.state_name == ("Stable" if live else "Empty")
        for member_id, client in live.items():
            assert client.working == {(t, n) for t, numbers in group.target_of(member_id).items() for n in numbers}
        topics = [topic for name, topic in self.c.image.topics.items() if group.is_subscribed_to(name)]
        consumed = sorted(partition for client in live.values() for partition in client.working)
        assert consumed == sorted((topic.id, n) for topic in topics for n in range(len(topic.partitions)))

    def stay_awake(self, seconds: int) -> None:
        for _ in range(seconds):
            self.time_passes(1_000)
            for client in self.clients:
                if client.alive and self.may_join(client):
                    client.act(lost=False)
                    client.give_back()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.group
        consumed: set[tuple[UUID, int]] = set()
        for client in self.clients:
            assert consumed.isdisjoint(client.working)
            consumed |= client.working
            if group is not None:
                assert all(group.owner_of(*partition) == client.member_id for partition in client.working)

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.group
        if group is None:
            return
        now = {"group": group.epoch, "target": group.assignment_epoch}
        now |= {member_id: member.member_epoch for member_id, member in group.members.items()}
        for name, epoch in now.items():
            assert epoch >= self.epochs.get(name, 0) or epoch == -2
            assert epoch <= group.epoch
        self.epochs = now
        counted = sum(member.classic is None for member in group.members.values())
        assert self.c.shard.state.consumer_members == counted


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
