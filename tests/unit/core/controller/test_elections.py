"""Who leads after a change, and who may."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.core.controller.builder import apply, changed_partition
from ottla.core.controller.commands import NewTopic
from ottla.core.controller.context import Context
from ottla.core.controller.elections import RECOVERING, ElectionKind, Electorate
from ottla.core.controller.image import PartitionImage
from ottla.core.controller.records import (
    NO_LEADER,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    Record,
    TopicRecord,
)
from ottla.core.controller.validation import CollisionIndex
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import CorruptLogError
from tests.unit.core.controller.cluster import Cluster

OFFLINE = -1


def state(leader: int, isr: list[int], elr: list[int] | None = None, known: list[int] | None = None) -> PartitionImage:
    return PartitionImage(
        replicas=(1, 2, 3),
        isr=tuple(isr),
        leader=leader,
        leader_epoch=7,
        partition_epoch=9,
        elr=tuple(elr or ()),
        last_known_elr=tuple(known or ()),
    )


def test_eligible_replicas_are_forgotten_of_one_topic_or_of_all() -> None:
    cluster = Cluster(brokers=3)
    records: list[Record] = []
    for number, name in enumerate("ab"):
        records.append(TopicRecord(name=name, topic_id=UUID(int=number + 1)))
        for index, elr in enumerate([(2,), ()]):
            records.append(
                PartitionRecord(
                    partition_id=index,
                    topic_id=UUID(int=number + 1),
                    replicas=(1, 2, 3),
                    isr=(1,),
                    leader=1,
                    eligible_leader_replicas=elr,
                    last_known_elr=(),
                )
            )
    image, _ = apply(cluster.image, records, offset=100, epoch=0)
    one, delta = apply(image, [ClearElrRecord(topic_name="b")], offset=101, epoch=0)
    assert [[part.elr for part in one.topics[name].partitions] for name in "ab"] == [[(2,), ()], [(), ()]]
    assert delta.partitions_changed == {UUID(int=2): frozenset({0})}
    assert one.topics["b"].partitions[0].partition_epoch == 1, "as after any other change"
    everything, _ = apply(cluster.image, [*records, ClearElrRecord(topic_name="")], offset=101, epoch=0)
    assert not [part for name in "ab" for part in everything.topics[name].partitions if part.elr]
    with pytest.raises(CorruptLogError):
        apply(image, [ClearElrRecord(topic_name="c")], offset=101, epoch=0)


def after(
    before: PartitionImage, *, live: list[int], min_insync: int = 2, unclean: bool = False, **wanted: Any
) -> PartitionImage:
    """The partition after a change, in a cluster in which only some brokers are active."""
    cluster = Cluster(brokers=5)
    configs = [("min.insync.replicas", str(min_insync)), ("unclean.leader.election.enable", str(unclean).lower())]
    cluster.create(NewTopic("t", assignments=[(0, before.replicas)], configs=configs))
    topic = cluster.image.topics["t"]
    setup: list[Any] = [
        BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=broker.id not in live)
        for broker in cluster.image.brokers.values()
    ]
    image, _ = apply(cluster.image, setup, offset=99, epoch=0)
    context = Context(image, BrokerConfig.from_properties({}), CollisionIndex(), cluster.new_uuid, 100)
    partition = PartitionImage(**{name: getattr(before, name) for name in before.__slots__})
    record = Electorate(context).change(type(topic)(topic.name, topic.id, (partition,)), 0, **wanted)
    return before if record is None else changed_partition(before, record)


def summary(partition: PartitionImage) -> tuple[int, list[int], list[int], list[int]]:
    return partition.leader, list(partition.isr), list(partition.elr), list(partition.last_known_elr)


@pytest.mark.parametrize(
    ("before", "isr", "live", "expected"),
    [
        pytest.param(state(1, [1, 2, 3]), [2, 3], [2, 3], (2, [2, 3], [], []), id="the next in sync leads"),
        pytest.param(state(2, [2, 3]), [2], [1, 2], (2, [2], [3], []), id="below the minimum who leaves is eligible"),
        pytest.param(state(2, [2], [3]), [], [1, 3], (3, [3], [2], []), id="an eligible one leads if nobody is"),
        pytest.param(state(2, [2], [3]), [], [1], (NO_LEADER, [], [2, 3], [2]), id="nobody leads rather than 1"),
        pytest.param(state(3, [3], [2]), [3, 1], [1, 3], (3, [3, 1], [], []), id="with enough nobody else is eligible"),
        pytest.param(state(NO_LEADER, [], [2, 3], [2]), [], [1, 3], (3, [3], [2], []), id="whoever comes back first"),
        pytest.param(state(NO_LEADER, [], [], [2]), [], [1, 2], (2, [2], [], []), id="the last known leader"),
        pytest.param(state(NO_LEADER, [], [3], [2]), [], [1, 2], (NO_LEADER, [], [3], [2]), id="not yet"),
        pytest.param(state(NO_LEADER, [], [], [2, 3]), [], [1, 2], (NO_LEADER, [], [], [2, 3]), id="known are several"),
    ],
)
def test_an_election(
    before: PartitionImage, isr: list[int], live: list[int], expected: tuple[int, list[int], list[int], list[int]]
) -> None:
    changed = after(before, live=live, isr=isr)
    assert summary(changed) == expected
    assert changed.leader_epoch == before.leader_epoch + (changed.leader != before.leader)


def test_nothing_changes_where_nothing_has_to() -> None:
    before = state(2, [2, 3, 1])
    assert after(before, live=[1, 2, 3]) is before
    assert after(before, live=[1, 2, 3], isr=[2, 3, 1], kind=ElectionKind.UNCLEAN) is before


def test_the_preferred_leader_is_the_first_replica_if_it_is_in_sync() -> None:
    assert after(state(2, [2, 1]), live=[1, 2], kind=ElectionKind.PREFERRED).leader == 1
    assert after(state(2, [2, 3]), live=[1, 2, 3], kind=ElectionKind.PREFERRED).leader == 2
    assert after(state(2, [2, 1]), live=[2, 3], kind=ElectionKind.PREFERRED).leader == 2


@pytest.mark.parametrize("by_command", [True, False])
def test_an_unclean_leader_is_alone_in_sync_and_says_that_it_recovers(by_command: bool) -> None:
    wanted: dict[str, Any] = {"kind": ElectionKind.UNCLEAN} if by_command else {"unclean": True}
    changed = after(state(NO_LEADER, [], [2], [2]), live=[1, 3], **wanted)
    assert summary(changed) == (1, [1], [], [])
    assert changed.leader_recovery_state == RECOVERING


def test_an_unclean_election_takes_an_eligible_replica_if_one_lives() -> None:
    changed = after(state(NO_LEADER, [], [3], [2]), live=[1, 3], unclean=True)
    assert (changed.leader, changed.leader_recovery_state) == (3, 0)


def test_with_one_replica_needed_who_is_elected_alone_makes_the_others_ineligible() -> None:
    assert summary(after(state(NO_LEADER, [], [2, 3], [2]), live=[3], min_insync=1)) == (3, [3], [], [])


def test_a_crashed_replica_is_not_eligible() -> None:
    assert summary(after(state(1, [1, 2]), live=[2], isr=[2], not_eligible=[1])) == (2, [2], [], [])


def test_a_replica_that_goes_begins_a_new_epoch_and_is_in_no_list() -> None:
    changed = after(state(2, [2], [3]), live=[1, 2], replicas=[1, 2])
    assert (changed.replicas, summary(changed), changed.leader_epoch) == ((1, 2), (2, [2], [], []), 8)


def test_new_replicas_get_the_directory_of_brokers_that_have_one() -> None:
    directories = tuple(UUID(int=n) for n in (51, 52, 53))
    before = state(2, [2, 3])
    before = changed_partition(
        before, PartitionChangeRecord(partition_id=0, topic_id=UUID(int=1), directories=directories)
    )
    changed = after(before, live=[2, 3], replicas=[2, 3, 4], min_insync=1)
    assert changed.directories == (directories[1], directories[2], UUID(int=1004))


def test_a_replica_without_its_directory_does_not_lead() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2])]))
    gone = BrokerRegistrationChangeRecord(
        broker_id=1, broker_epoch=cluster.image.brokers[1].epoch, log_dirs=(UUID(int=5),)
    )
    image, _ = apply(cluster.image, [gone], offset=99, epoch=0)
    context = Context(image, BrokerConfig.from_properties({}), CollisionIndex(), cluster.new_uuid, 100)
    electorate = Electorate(context)
    topic = image.topics["t"]
    assert not electorate.may_lead(topic.partitions[0], 1)
    assert electorate.may_lead(topic.partitions[0], 2)
    record = electorate.change(topic, 0, isr=[2])
    assert record is not None
    assert record.leader == 2
