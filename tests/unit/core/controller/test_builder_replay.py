"""A controller that lost its memory and reads its log again knows exactly what it knew before."""

from __future__ import annotations

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.controller.builder import apply
from ottla.core.controller.commands import (
    AllocateProducerIds,
    Command,
    ConfigChange,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    FeatureUpdate,
    IncrementalAlterConfigs,
    MorePartitions,
    NewTopic,
    ResourceChange,
    TopicReference,
    UpdateFeatures,
)
from ottla.core.controller.controller import Controller
from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.core.controller.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    Record,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.core.controller.snapshot import snapshot_records
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, CorruptLogError
from tests.unit.core.controller.cluster import EMPTY, Cluster

NAMES = ["a", "b", "c.d", "c_d", "e", "f/g"]
names = st.sampled_from(NAMES)
topic_configs = st.sampled_from([[], [("retention.ms", "5")], [("nope", "5")], [("cleanup.policy", "compact")]])
commands: st.SearchStrategy[Command[object]] = st.one_of(
    st.builds(
        CreateTopics,
        st.lists(
            st.builds(
                NewTopic,
                names,
                st.integers(-1, 4),
                st.integers(-1, 4),
                assignments=st.sampled_from([(), ((0, (1,)),), ((0, (1,)), (0, (1,)))]),
                configs=topic_configs,
            ),
            min_size=1,
            max_size=3,
        ),
        st.sampled_from([False, False, False, True]),
    ),
    st.builds(DeleteTopics, st.lists(st.builds(TopicReference, names, st.none()), min_size=1, max_size=3)),
    st.builds(
        CreatePartitions,
        st.lists(st.builds(MorePartitions, names, st.integers(0, 6), st.none()), min_size=1, max_size=2),
    ),
    st.builds(
        IncrementalAlterConfigs,
        st.lists(
            st.builds(
                ResourceChange,
                st.sampled_from([ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP]),
                st.sampled_from([*NAMES, "", "1"]),
                st.lists(
                    st.builds(
                        ConfigChange,
                        st.sampled_from(["retention.ms", "cleanup.policy", "max.connections"]),
                        st.integers(0, 3),
                        st.sampled_from(["5", "compact", None]),
                    ),
                    max_size=2,
                ),
            ),
            min_size=1,
            max_size=2,
        ),
    ),
    st.builds(AllocateProducerIds, st.integers(1, 3), st.integers(0, 2)),
    st.builds(ElectLeaders, st.integers(0, 1), st.none()),
    st.builds(
        UpdateFeatures,
        st.lists(st.builds(FeatureUpdate, st.just("metadata.version"), st.integers(6, 31), st.integers(0, 4))),
    ),
)


def run(cluster: Cluster, sequence: list[Command[object]]) -> list[tuple[Record, ...]]:
    """Submit the commands; the records of each."""
    batches = []
    for command in sequence:
        before = len(cluster.log)
        try:
            cluster.submit(command)
        except ApiError:
            assert len(cluster.log) == before
        batches.append(tuple(cluster.log[before:]))
    return batches


@given(sequence=st.lists(commands, max_size=25), seed=st.integers(0, 1000))
def test_the_log_alone_gives_the_same_image(sequence: list[Command[object]], seed: int) -> None:
    cluster = Cluster(brokers=3, racks=["a", "b", None], seed=seed)
    run(cluster, sequence)
    assert cluster.replayed() == cluster.image


@given(sequence=st.lists(commands, max_size=25), seed=st.integers(0, 1000))
def test_a_snapshot_gives_the_same_image(sequence: list[Command[object]], seed: int) -> None:
    cluster = Cluster(brokers=3, seed=seed)
    run(cluster, sequence)
    image, _ = apply(EMPTY, snapshot_records(cluster.image), offset=cluster.image.offset, epoch=cluster.image.epoch)
    assert image == cluster.image


@given(sequence=st.lists(commands, max_size=25), seed=st.integers(0, 1000))
def test_who_follows_the_changes_ends_up_with_the_image(sequence: list[Command[object]], seed: int) -> None:
    """However records are grouped into commits, images and deltas fit together, and old images stay as they were."""
    cluster = Cluster(brokers=3, seed=seed)
    run(cluster, sequence)
    rng = random.Random(seed)
    image, followed, position = EMPTY, Follower(), 0
    while position < len(cluster.log):
        end = position + rng.randint(1, 6)
        # A topic and its partitions come in one batch, as the controller writes them.
        while end < len(cluster.log) and isinstance(cluster.log[end], PartitionRecord | ConfigRecord):
            end += 1
        before, frozen = image, repr(image)
        image, delta = apply(image, cluster.log[position:end], offset=min(end, len(cluster.log)) - 1, epoch=0)
        assert repr(before) == frozen
        followed.see(image, delta)
        position = end
    assert image == cluster.image
    followed.check(image)


class Follower:
    """Keeps its own picture of the topics from deltas alone, as the table of hosted partitions does."""

    def __init__(self) -> None:
        self.partitions: dict[object, dict[int, object]] = {}
        self.configs: dict[object, object] = {}

    def see(self, image: MetadataImage, delta: ImageDelta) -> None:
        for topic in delta.topics_deleted:
            del self.partitions[topic.id]
            self.configs.pop((ResourceType.TOPIC, topic.name), None)
        for topic in delta.topics_created:
            self.partitions[topic.id] = dict(enumerate(topic.partitions))
        for topic_id, indexes in delta.partitions_changed.items():
            for index in indexes:
                self.partitions[topic_id][index] = image.topics_by_id[topic_id].partitions[index]
        for resource in delta.configs_changed:
            self.configs[resource] = image.configs_of(*resource)

    def check(self, image: MetadataImage) -> None:
        expected = {topic.id: dict(enumerate(topic.partitions)) for topic in image.topics.values()}
        assert self.partitions == expected
        assert {key: value for key, value in self.configs.items() if value} == dict(image.configs)


def test_a_restarted_controller_still_sees_names_that_collide() -> None:
    cluster = Cluster()
    cluster.create(NewTopic("a.b"))
    restarted = Controller(cluster.replayed(), BrokerConfig.from_properties(), cluster.new_uuid)
    decision = restarted.decide(CreateTopics([NewTopic("a_b")]), len(cluster.log))
    assert decision.records == ()


KNOWN, UNKNOWN = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(
    "record",
    [
        TopicRecord(name="t", topic_id=UNKNOWN),
        TopicRecord(name="u", topic_id=KNOWN),
        PartitionRecord(partition_id=0, topic_id=UNKNOWN, replicas=(1,), isr=(1,), leader=1),
        PartitionRecord(partition_id=7, topic_id=KNOWN, replicas=(1,), isr=(1,), leader=1),
        PartitionChangeRecord(partition_id=0, topic_id=KNOWN, leader=1),
        RemoveTopicRecord(topic_id=UNKNOWN),
        BrokerRegistrationChangeRecord(broker_id=9, broker_epoch=0, fenced=True),
        ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=500),
    ],
)
def test_a_record_that_contradicts_the_log_before_it_stops_the_node(record: Record) -> None:
    image, _ = apply(
        EMPTY,
        [
            TopicRecord(name="t", topic_id=KNOWN),
            ProducerIdsRecord(broker_id=1, broker_epoch=0, next_producer_id=1000),
        ],
        offset=1,
        epoch=0,
    )
    with pytest.raises(CorruptLogError):
        apply(image, [record], offset=2, epoch=0)
