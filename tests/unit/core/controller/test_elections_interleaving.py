"""Whatever brokers do, in whatever order: who leads may lead, and has everything that was acknowledged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.core.controller.builder import apply
from ottla.core.controller.cluster_commands import (
    AlterPartitions,
    AlterReassignments,
    BrokerHeartbeat,
    FenceBroker,
    InSyncReplica,
    PartitionToAlter,
    ReassignedPartition,
    UnregisterBroker,
)
from ottla.core.controller.commands import (
    ConfigChange,
    ElectLeaders,
    FeatureUpdate,
    IncrementalAlterConfigs,
    NewTopic,
    RegisterBroker,
    ResourceChange,
    UpdateFeatures,
)
from ottla.core.controller.feature_levels import ELR_VERSION
from ottla.core.controller.features import REGISTERED_FEATURES
from ottla.core.controller.image import MetadataImage, PartitionImage
from ottla.core.controller.records import NO_LEADER, BrokerEndpoint, PartitionChangeRecord
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.controller.cluster import CLUSTER_ID, EMPTY, Cluster

BROKERS: Final = (1, 2, 3, 4)
TOPICS: Final = ("two", "one", "unclean", "alone")


class Story:
    """A cluster, and beside it who holds all that was acknowledged in each partition."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.incarnations = 0
        self.directories = {broker_id: UUID(int=1000 + broker_id) for broker_id in BROKERS}
        for broker_id in BROKERS:
            self.register(broker_id, clean=False, wiped=False, fenced=False)
        self.cluster.create(
            NewTopic("two", assignments=[(0, [1, 2, 3])], configs=[("min.insync.replicas", "2")]),
            NewTopic("one", assignments=[(0, [2, 3, 4])]),
            NewTopic("unclean", assignments=[(0, [3, 4])], configs=[("unclean.leader.election.enable", "true")]),
            NewTopic("alone", assignments=[(0, [4])]),
        )
        self.holders = {name: set(self.partition(name).replicas) for name in TOPICS}
        self.forced = False
        """Whether somebody asked for an unclean election."""
        self.vouched_for: tuple[int, ...] = ()
        """Replicas of which their leader just said that they are in sync."""

    @property
    def image(self) -> MetadataImage:
        return self.cluster.image

    def partition(self, name: str) -> PartitionImage:
        return self.image.topics[name].partitions[0]

    def min_insync(self, name: str) -> int:
        configured = int(self.image.topic_configs(name).get("min.insync.replicas", "1"))
        return min(configured, len(self.partition(name).replicas))

    def step(self, act: Callable[[], Any]) -> None:
        """Do something, and check every record of it in turn."""
        self.forced, self.vouched_for = False, ()
        image, seen = self.image, len(self.cluster.log)
        try:
            act()
        except ApiError as error:
            if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise
        records = self.cluster.log[seen:]
        touched = [record for record in records if isinstance(record, PartitionChangeRecord)]
        assert len({(record.topic_id, record.partition_id) for record in touched}) == len(touched)
        for record in touched:
            before = image.topics_by_id[record.topic_id]
            self.check_change(before.name, before.partitions[0], record)
        assert apply(EMPTY, self.cluster.log, offset=len(self.cluster.log) - 1, epoch=0)[0] == self.image
        for name in TOPICS:
            self.check_state(name)
            # A replica that left has deleted its log.
            self.holders[name] &= set(self.partition(name).replicas)

    def check_change(self, name: str, before: PartitionImage, record: PartitionChangeRecord) -> None:
        after = self.partition(name)
        assert after.partition_epoch == before.partition_epoch + 1
        if after.leader != before.leader:
            assert after.leader_epoch == before.leader_epoch + 1
        may_lead = {*before.isr, *before.elr, *self.vouched_for}
        if after.leader not in (before.leader, NO_LEADER) and after.leader not in may_lead:
            unclean = name == "unclean" or self.forced
            assert unclean or before.last_known_elr == (after.leader,)
            assert after.isr == (after.leader,)
            assert after.leader_recovery_state == 1
            self.holders[name] = {after.leader}
        if after.leader not in (before.leader, NO_LEADER):
            assert after.leader in self.holders[name]

    def check_state(self, name: str) -> None:
        state = self.partition(name)
        brokers = self.image.brokers
        assert len(set(state.isr)) == len(state.isr)
        assert {*state.isr, *state.elr} <= set(state.replicas)
        assert not set(state.isr) & set(state.elr)
        if not self.image.feature_level(ELR_VERSION):
            assert state.isr
            assert not state.elr
            assert not state.last_known_elr
        elif state.leader == NO_LEADER:
            assert not state.isr
            assert state.elr or state.last_known_elr
        if state.leader != NO_LEADER:
            assert all(member in brokers and not brokers[member].fenced for member in state.isr)
            assert state.leader in state.isr
            assert not state.last_known_elr
        if len(state.isr) >= self.min_insync(name):
            assert not state.elr

    # -- what may happen

    def register(self, broker_id: int, *, clean: bool, wiped: bool, fenced: bool = True) -> None:
        """A process starts: whoever ran before is dead. A crash costs what was not on disk, a new disk everything."""
        self.incarnations += 1
        before = self.image.brokers.get(broker_id)
        if wiped:
            self.directories[broker_id] = UUID(int=5000 + self.incarnations)
        if not clean or wiped or before is None:
            self.forget(broker_id, wiped=wiped)
        command = RegisterBroker(
            broker_id=broker_id,
            incarnation_id=UUID(int=9000 + self.incarnations),
            cluster_id=CLUSTER_ID,
            endpoints=[BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id, 0)],
            features=REGISTERED_FEATURES,
            log_dirs=[self.directories[broker_id]],
            fenced=fenced,
            clean_start=clean and not wiped,
            previous_broker_epoch=before.epoch if before is not None and clean and not wiped else -1,
        )
        self.cluster.submit(command)

    def forget(self, broker_id: int, *, wiped: bool) -> None:
        for name in TOPICS if self.image.topics else ():
            state = self.partition(name)
            if broker_id not in state.replicas:
                continue
            alone = {*state.isr, *state.elr} == {broker_id}
            if alone and (not wiped or len(state.replicas) == 1):
                self.holders[name] = {broker_id}  # Nobody is known to have more: what it lost is lost.
            else:
                self.holders[name].discard(broker_id)

    def heartbeat(self, broker_id: int, *, want_fence: bool, want_shut_down: bool, caught_up: bool) -> None:
        broker = self.image.brokers.get(broker_id)
        epoch = -1 if broker is None else broker.epoch
        self.cluster.submit(
            BrokerHeartbeat(
                broker_id=broker_id,
                broker_epoch=epoch,
                current_metadata_offset=self.image.offset if caught_up else epoch - 1,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
            )
        )

    def fence(self, broker_id: int) -> None:
        broker = self.image.brokers.get(broker_id)
        self.cluster.submit(FenceBroker(broker_id, -1 if broker is None else broker.epoch))

    def unregister(self, broker_id: int) -> None:
        self.cluster.submit(UnregisterBroker(broker_id))

    def alter(self, name: str, members: tuple[int, ...], *, stale: bool) -> None:
        """The leader asks for an ISR. Whom it takes in has fetched all it has, in the life that it now leads."""
        state, brokers = self.partition(name), self.image.brokers
        leader = brokers.get(state.leader)
        if leader is None:
            return
        isr = tuple(member for member in state.replicas if member in members or member == state.leader)
        asked = PartitionToAlter(
            self.image.topics[name].id,
            0,
            state.leader_epoch,
            [InSyncReplica(member, brokers[member].epoch if member in brokers else 7) for member in isr],
            state.partition_epoch - stale,
        )
        [answer] = self.cluster.submit(AlterPartitions(leader.id, leader.epoch, [asked]))
        after = self.partition(name)
        if answer.outcome.code is ErrorCode.NONE:
            assert (answer.isr, answer.partition_epoch) == (after.isr, after.partition_epoch)
        if answer.outcome.code in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
            self.vouched_for = isr
            self.holders[name] |= set(isr)

    def move(self, name: str, replicas: list[int] | None) -> None:
        """Replicas move to other brokers, or a move is stopped (None). One that is new begins with nothing."""
        self.cluster.submit(AlterReassignments([ReassignedPartition(name, 0, replicas)]))

    def write(self, name: str) -> None:
        """A record is acknowledged: everybody in sync has it, and nobody else."""
        state = self.partition(name)
        if state.leader != NO_LEADER and len(state.isr) >= self.min_insync(name):
            self.holders[name] = set(state.isr)

    def set_min_insync(self, name: str, value: int) -> None:
        change = ConfigChange("min.insync.replicas", 0, str(value))
        self.cluster.submit(IncrementalAlterConfigs([ResourceChange(2, name, [change])]))

    def switch_elr(self, *, on: bool) -> None:
        level = FeatureUpdate(ELR_VERSION, int(on), 1 if on else 2)
        assert self.cluster.submit(UpdateFeatures([level])).code is ErrorCode.NONE

    def elect(self, *, unclean: bool) -> None:
        self.forced = unclean
        self.cluster.submit(ElectLeaders(int(unclean)))


brokers = st.sampled_from(BROKERS)
topics = st.sampled_from(TOPICS)
often_true = st.sampled_from([True, True, True, False])
often_false = st.sampled_from([False, False, False, True])
ACTS = st.one_of(
    st.tuples(
        st.just("register"),
        st.fixed_dictionaries({"broker_id": brokers, "clean": st.booleans(), "wiped": often_false}),
    ),
    st.tuples(
        st.just("heartbeat"),
        st.fixed_dictionaries(
            {"broker_id": brokers, "want_fence": often_false, "want_shut_down": often_false, "caught_up": often_true}
        ),
    ),
    st.tuples(st.just("fence"), st.fixed_dictionaries({"broker_id": brokers})),
    st.tuples(st.just("unregister"), st.fixed_dictionaries({"broker_id": brokers})),
    st.tuples(
        st.just("alter"),
        st.fixed_dictionaries({"name": topics, "members": st.lists(brokers).map(tuple), "stale": often_false}),
    ),
    st.tuples(
        st.just("move"),
        st.fixed_dictionaries(
            {"name": topics, "replicas": st.none() | st.lists(brokers, min_size=1, max_size=4, unique=True)}
        ),
    ),
    st.tuples(st.just("write"), st.fixed_dictionaries({"name": topics})),
    st.tuples(st.just("set_min_insync"), st.fixed_dictionaries({"name": topics, "value": st.integers(1, 3)})),
    st.tuples(st.just("switch_elr"), st.fixed_dictionaries({"on": st.booleans()})),
    st.tuples(st.just("elect"), st.fixed_dictionaries({"unclean": often_false})),
)


def beat(broker_id: int) -> tuple[str, dict[str, Any]]:
    return "heartbeat", {"broker_id": broker_id, "want_fence": False, "want_shut_down": False, "caught_up": True}


ONE_LEFT: Final = [("fence", {"broker_id": 2}), ("fence", {"broker_id": 3})]
GONE: Final = ("fence", {"broker_id": 1})
STOP: Final = ("heartbeat", {"broker_id": 1, "want_fence": False, "want_shut_down": True, "caught_up": True})
MOVE: Final = ("move", {"name": "two", "replicas": [4]})
CRASHED: Final = ("register", {"broker_id": 1, "clean": False, "wiped": False})
NO_ELR: Final = ("switch_elr", {"on": False})
ENOUGH: Final = [("set_min_insync", {"name": "two", "value": 1}), ("write", {"name": "two"})]


@settings(max_examples=150, deadline=None)
@given(acts=st.lists(ACTS, max_size=40))
@example(acts=[*ONE_LEFT, *ENOUGH, GONE, beat(3)])
@example(acts=[*ONE_LEFT, GONE, *ENOUGH, beat(3), ENOUGH[1], ("fence", {"broker_id": 3}), beat(1)])
@example(acts=[("fence", {"broker_id": 2}), beat(2), STOP, ("alter", {"name": "two", "members": (1,), "stale": False})])
@example(acts=[("fence", {"broker_id": 3}), MOVE, STOP, ("register", {"broker_id": 2, "clean": False, "wiped": False})])
@example(acts=[*ONE_LEFT, GONE, NO_ELR, beat(3), beat(1), ENOUGH[1], ("switch_elr", {"on": True})])
@example(acts=[NO_ELR, *ONE_LEFT, GONE, CRASHED, beat(3), beat(1)])
def test_who_leads_has_what_was_acknowledged(acts: list[tuple[str, dict[str, Any]]]) -> None:
    story = Story()
    for name, arguments in acts:
        story.step(lambda name=name, arguments=arguments: getattr(story, name)(**arguments))  # type: ignore[misc]
