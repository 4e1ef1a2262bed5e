"""Replicas move while brokers come, crash and go: nothing acknowledged goes with the replicas that leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.core.controller.cluster_commands import AlterReassignments, ReassignedPartition
from ottla.core.controller.image import PartitionImage
from ottla.core.controller.records import NO_LEADER, PartitionChangeRecord
from tests.unit.core.controller.test_elections_interleaving import ACTS, BROKERS, Story, brokers, topics


class MovingStory(Story):
    """A replica that leaves the list of replicas is deleted: what it held is gone with it."""

    def check_state(self, name: str) -> None:
        super().check_state(name)
        state = self.partition(name)
        staying = self.holders[name] & set(state.replicas)
        assert staying or not self.holders[name], "the last one that had everything was taken away"
        self.holders[name] = staying
        assert set(state.adding) <= set(state.replicas)
        assert set(state.removing) <= set(state.replicas)
        assert set(state.removing) != set(state.replicas)
        assert len(state.directories) == len(state.replicas)
        if state.leader != NO_LEADER:
            assert state.leader in self.holders[name]

    asked: frozenset[int] = frozenset()
    """Whom a leader has just asked to have in the ISR."""

    def step(self, act: Callable[[], Any]) -> None:
        self.asked = frozenset()
        super().step(act)

    def check_change(self, name: str, before: PartitionImage, record: PartitionChangeRecord) -> None:
        """Who comes into the ISR may lead at once: a move may end by that, or its leader wants to stop."""
        after = self.partition(name)
        if after.leader != before.leader and after.leader in self.asked:
            assert after.leader in after.isr
            assert after.leader_epoch == before.leader_epoch + 1
        else:
            super().check_change(name, before, record)

    def alter(self, name: str, members: tuple[int, ...], *, stale: bool) -> None:
        """A leader that leaves by what it asked for is told that another one leads; it happened all the same."""
        before = self.partition(name)
        super().alter(name, members, stale=stale)
        if self.partition(name).partition_epoch != before.partition_epoch:
            self.asked = frozenset(replica for replica in before.replicas if replica in (*members, before.leader))
            self.holders[name] |= self.asked

    def reassign(self, name: str, replicas: tuple[int, ...] | None) -> None:
        self.cluster.submit(AlterReassignments([ReassignedPartition(name, 0, replicas)]))


MOVES = st.tuples(
    st.just("reassign"),
    st.fixed_dictionaries(
        {"name": topics, "replicas": st.none() | st.lists(brokers, min_size=1, unique=True).map(tuple)}
    ),
)


ALL_CATCH_UP = st.tuples(
    st.just("alter"), st.fixed_dictionaries({"name": topics, "members": st.just(BROKERS), "stale": st.just(False)})
)


ONLY_THE_NEW_ONE_IS_IN_SYNC: Final[list[tuple[str, dict[str, Any]]]] = [
    ("fence", {"broker_id": 2}),
    ("reassign", {"name": "one", "replicas": (1, 2)}),
    ("alter", {"name": "one", "members": (1, 3, 4), "stale": False}),
    ("fence", {"broker_id": 3}),
    ("fence", {"broker_id": 4}),
    ("write", {"name": "one"}),
]


@settings(max_examples=150, deadline=None)
@given(acts=st.lists(st.one_of(ACTS, MOVES, MOVES, ALL_CATCH_UP), max_size=40))
@example(acts=[*ONLY_THE_NEW_ONE_IS_IN_SYNC, ("reassign", {"name": "one", "replicas": None})])
def test_what_was_acknowledged_survives_moves(acts: list[tuple[str, dict[str, Any]]]) -> None:
    story = MovingStory()
    for name, arguments in acts:
        story.forced = False
        story.step(lambda name=name, arguments=arguments: getattr(story, name)(**arguments))  # type: ignore[misc]
