"""Offsets under any interleaving of commits, transactions, deletions, expiry and restarts.

The model is a list of writes: it knows no numbers and no held offsets, it works out from the whole history what must
be visible. Of the writes to a partition that took effect, the one that stands last in the log counts.
"""

from __future__ import annotations

from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.core.controller.image import ImageDelta, TopicImage
from ottla.core.groups import offsets
from ottla.core.groups.offset_commands import (
    CommitOffsets,
    CommitTransactionalOffsets,
    DeleteOffsets,
    FetchOffsets,
    NewOffset,
    TopicPartitions,
)
from ottla.core.groups.records import OffsetRecord
from ottla.model.errors import ErrorCode
from tests.unit.core.groups.offset_coordinator import OffsetCoordinator, dump, held

MINUTE_MS = 60_000
RETENTION_MS = 10 * MINUTE_MS
GROUPS = ("g", "h")
TOPICS = {"t": UUID(int=1), "u": UUID(int=2)}
PARTITIONS = (0, 1)
PRODUCERS = (1, 2, 3)

groups = st.sampled_from(GROUPS)
topics = st.sampled_from(tuple(TOPICS))
producers = st.sampled_from(PRODUCERS)
written = st.lists(st.tuples(topics, st.sampled_from(PARTITIONS), st.integers(-1, 1000)), min_size=1, max_size=4)


class Write:
    """One offset that was written, or a deletion."""

    def __init__(self, place: tuple[str, str, int], offset: int, producer_id: int, at_ms: int) -> None:
        self.place = place
        self.offset = offset
        self.producer_id = producer_id
        self.at_ms = at_ms
        self.state = "committed" if producer_id < 0 else "open"


class AnyOrder(RuleBasedStateMachine):
    """Commands go to a shard, and what they mean to a list."""

    def __init__(self) -> None:
        super().__init__()
        self.c = OffsetCoordinator(
            {"offsets.retention.minutes": "10", "offsets.retention.check.interval.ms": str(MINUTE_MS)}
        )
        self.writes: list[Write] = []

    def visible(self, place: tuple[str, str, int]) -> Write | None:
        """The write that counts for a partition, by the whole history."""
        found = None
        for write in self.writes:
            if write.place == place and write.state == "committed":
                found = write
        return None if found is None or found.offset == -1 else found

    def is_open(self, place: tuple[str, str, int]) -> bool:
        return any(write.place == place and write.state == "open" for write in self.writes)

    def forget(self, place: tuple[str, str, int]) -> None:
        """A deletion: of what is committed, and of what transactions have written so far."""
        for write in self.writes:
            if write.place == place and write.state == "open":
                write.state = "forgotten"
        self.writes.append(Write(place, -1, -1, self.c.now_ms))

    @rule(group_id=groups, places=written, retention_ms=st.sampled_from((-1, -1, 3 * MINUTE_MS)))
    def commit(self, group_id: str, places: list[tuple[str, int, int]], retention_ms: int) -> None:
        new = [NewOffset(topic, TOPICS[topic], partition, offset) for topic, partition, offset in places]
        command = CommitOffsets(group_id=group_id, offsets=new, retention_time_ms=retention_ms)
        assert self.c.ask(command) == [ErrorCode.NONE] * len(new)
        for topic, partition, offset in places:
            if offset == -1:
                self.forget((group_id, topic, partition))
                continue
            write = Write((group_id, topic, partition), offset, -1, self.c.now_ms)
            if retention_ms >= 0:
                write.at_ms += retention_ms - RETENTION_MS
            self.writes.append(write)

    @rule(group_id=groups, places=written, producer_id=producers)
    def commit_in_transaction(self, group_id: str, places: list[tuple[str, int, int]], producer_id: int) -> None:
        new = [NewOffset(topic, TOPICS[topic], partition, offset) for topic, partition, offset in places]
        self.c.ask(
            CommitTransactionalOffsets(group_id=group_id, offsets=new, producer_id=producer_id, producer_epoch=0)
        )
        for topic, partition, offset in places:
            place = (group_id, topic, partition)
            for write in self.writes:
                if write.place == place and write.producer_id == producer_id and write.state == "open":
                    write.state = "overwritten"
            self.writes.append(Write(place, offset, producer_id, self.c.now_ms))

    @rule(producer_id=producers, committed=st.booleans())
    def end_transaction(self, producer_id: int, committed: bool) -> None:
        self.c.end(producer_id, committed=committed)
        for write in self.writes:
            if write.producer_id == producer_id and write.state == "open":
                write.state = "committed" if committed else "aborted"

    @precondition(lambda self: self.c.state.groups)
    @rule(topic=topics, partitions=st.lists(st.sampled_from(PARTITIONS), max_size=2, unique=True), data=st.data())
    def delete(self, topic: str, partitions: list[int], data: st.DataObject) -> None:
        group_id = data.draw(st.sampled_from(sorted(self.c.state.groups)))
        self.c.ask(DeleteOffsets(group_id=group_id, topics=[TopicPartitions(topic, partitions)]))
        for partition in partitions:
            self.forget((group_id, topic, partition))

    @rule(topic=topics)
    def delete_topic(self, topic: str) -> None:
        self.c.perform(
            offsets.metadata_changed(self.c.state, ImageDelta(topics_deleted=(TopicImage(topic, TOPICS[topic]),)))
        )
        self.c.pass_ms(0)
        for place in self.all_places():
            if place[1] == topic:
                self.forget(place)

    @rule(minutes=st.integers(1, 8))
    def let_time_pass(self, minutes: int) -> None:
        self.c.pass_ms(minutes * MINUTE_MS)
        for place in self.all_places():
            found = self.visible(place)
            if found is not None and not self.is_open(place) and self.c.now_ms - found.at_ms >= RETENTION_MS:
                self.forget(place)

    @rule()
    def restart(self) -> None:
        committed, waiting = dump(self.c.state.offsets), held(self.c.state.offsets)
        known = set(self.c.state.groups)
        count = self.c.state.offsets.count
        self.c.reload()
        assert dump(self.c.state.offsets) == committed
        assert held(self.c.state.offsets) == waiting
        assert set(self.c.state.groups) == known
        assert self.c.state.offsets.count == count == len(committed)

    @staticmethod
    def all_places() -> list[tuple[str, str, int]]:
        return [(group_id, topic, partition) for group_id in GROUPS for topic in TOPICS for partition in PARTITIONS]

    @invariant()
    def what_is_fetched_is_what_counts(self) -> None:
        for group_id in GROUPS:
            asked = [TopicPartitions(topic, PARTITIONS) for topic in TOPICS]
            for require_stable in (False, True):
                answer = self.c.ask(FetchOffsets(group_id=group_id, topics=asked, require_stable=require_stable))
                for topic, _, fetched in answer:
                    for found in fetched:
                        self.check((group_id, topic, found.partition), found.offset, found.error_code, require_stable)

    def check(self, place: tuple[str, str, int], offset: int, code: ErrorCode, require_stable: bool) -> None:
        if require_stable and self.is_open(place):
            assert code is ErrorCode.UNSTABLE_OFFSET_COMMIT
            return
        counts = self.visible(place)
        assert (offset, code) == (-1 if counts is None else counts.offset, ErrorCode.NONE)

    @invariant()
    def nothing_is_left_over(self) -> None:
        store = self.c.state.offsets
        assert all(topics and all(topics.values()) for topics in store._groups.values())
        assert all(topics and all(all(by.values()) for by in topics.values()) for topics in store._open.values())
        open_places = {(p, *place) for p, places in store._held.items() for place in places}
        assert open_places == {(w.producer_id, *w.place) for w in self.writes if w.state == "open"}


AnyOrder.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_the_model_is_not_idle() -> None:
    """One history by hand, so that a model that sees nothing is noticed."""
    machine = AnyOrder()
    machine.commit("g", [("t", 0, 5)], -1)
    machine.commit_in_transaction("g", [("t", 0, 9), ("u", 1, 7)], 1)
    machine.what_is_fetched_is_what_counts()
    machine.end_transaction(1, True)
    machine.what_is_fetched_is_what_counts()
    assert machine.c.fetch().offset == 9
    assert len([entry for entry in machine.c.log if isinstance(entry[0], OffsetRecord)]) == 3
