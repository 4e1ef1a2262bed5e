"""A reset goes where it was asked to, and never outside of the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.cli.failures import CommandError, UsageError
from ottla.cli.reset_plan import (
    PlannedOffset,
    ShiftBy,
    Target,
    ToCurrent,
    ToListed,
    plan_reset,
    read_offsets_file,
    write_offsets_file,
)
from ottla.cli.start_position import Edge, FromOffset
from ottla.client.cluster import Cluster
from ottla.client.consumer import AtTime
from ottla.client.group_descriptions import CommittedOffset
from ottla.client.offsets import EARLIEST, LATEST
from ottla.model.ids import TopicPartition
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.unit.client.scripted_broker import TOPIC
from tests.unit.client.scripted_coordinator import ScriptedCoordinator

PARTITION = TopicPartition(TOPIC, 0)
FIRST, END = 10, 100


def offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    """A log from 10 to 100 whose record at each offset was written in that millisecond."""
    asked = request.topics[0].partitions[0].timestamp
    known = {EARLIEST: FIRST, LATEST: END}
    found = known.get(asked, max(asked, FIRST) if asked < END else -1)
    entry = ListOffsetsPartitionResponse(partition_index=0, offset=found)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=[entry])])


@pytest.mark.parametrize(
    ("target", "new", "remarked"),
    [
        (Edge(EARLIEST), 10, False),
        (Edge(LATEST), 100, False),
        (FromOffset(42), 42, False),
        (FromOffset(3), 10, True),
        (FromOffset(2_000), 100, True),
        (AtTime(60), 60, False),
        (AtTime(5_000), 100, False),
        (ToCurrent(), 50, False),
        (ShiftBy(-7), 43, False),
        (ShiftBy(-1_000), 10, True),
        (ShiftBy(1_000), 100, True),
        (ToListed({PARTITION: 77}), 77, False),
    ],
)
def test_every_target_is_reached_as_far_as_the_log_goes(target: Target, new: int, remarked: bool) -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.on(ListOffsetsRequest, offsets)
        (planned,) = plan_reset(cluster, target, [PARTITION], {PARTITION: CommittedOffset(50)})
    assert (planned.partition, planned.current, planned.new) == (PARTITION, 50, new)
    assert (planned.remark is not None) == remarked


def test_a_partition_without_an_offset_is_at_its_end_or_cannot_be_shifted() -> None:
    with ScriptedCoordinator() as broker, Cluster(broker.settings()) as cluster:
        broker.on(ListOffsetsRequest, offsets)
        assert plan_reset(cluster, ToCurrent(), [PARTITION], {}) == [PlannedOffset(PARTITION, None, END)]
        with pytest.raises(CommandError, match=str(PARTITION)):
            plan_reset(cluster, ShiftBy(1), [PARTITION], {})


names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8).filter(
    lambda text: text.strip() == text
)
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))


@given(st.dictionaries(partitions, st.integers(0, 2**63 - 1), min_size=1, max_size=5))
def test_what_is_exported_can_be_read(offsets: dict[TopicPartition, int]) -> None:
    plan = [PlannedOffset(partition, None, offset) for partition, offset in offsets.items()]
    assert read_offsets_file(write_offsets_file(plan), "g") == offsets


def test_the_file_of_kafkas_tool_for_several_groups_is_read() -> None:
    assert read_offsets_file('"g","t",0,5\n\n"other",t,0,9\n', "g") == {TopicPartition("t", 0): 5}


@pytest.mark.parametrize(
    "text", ["", "t,0\n", "t,0,-1\n", "t,x,1\n", ",0,1\n", "t,0,1\nt,0,2\n", "other,t,0,1\n", f"t,0,{2**63}\n"]
)
def test_a_file_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--from-file"):
        read_offsets_file(text, "g")
