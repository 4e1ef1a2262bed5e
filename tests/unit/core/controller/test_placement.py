"""Replicas are spread so that no broker and no rack carries more than its share."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.core.controller.image import BrokerImage
from ottla.core.controller.placement import place_partitions
from ottla.model.errors import ApiError, ErrorCode


def brokers(*racks: str | None, fenced: frozenset[int] = frozenset()) -> list[BrokerImage]:
    return [
        BrokerImage(id=i, epoch=0, incarnation_id=UUID(int=i), endpoints=(), rack=rack, fenced=i in fenced)
        for i, rack in enumerate(racks, 1)
    ]


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=7),
    count=st.integers(1, 40),
    start=st.integers(0, 65535),
    data=st.data(),
)
def test_no_broker_holds_a_partition_twice_or_leads_more_than_its_share(
    racks: list[str | None], count: int, start: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place_partitions(brokers(*racks), first_partition=0, count=count, replication_factor=factor, start=start)
    assert len(placed) == count
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(i, 0) for i in range(1, len(racks) + 1)) <= 1


def test_every_rack_gets_a_replica() -> None:
    known = brokers("a", "a", "b", "b", "c", "c")
    rack_of = {broker.id: broker.rack for broker in known}
    for replicas in place_partitions(known, first_partition=0, count=30, replication_factor=3, start=7):
        assert {rack_of[broker_id] for broker_id in replicas} == {"a", "b", "c"}


def test_the_followers_of_one_leader_are_many_brokers() -> None:
    placed = place_partitions(brokers(*[None] * 5), first_partition=0, count=100, replication_factor=2, start=0)
    followers = {replicas[1] for replicas in placed if replicas[0] == 1}
    assert followers == {2, 3, 4, 5}


def test_topics_with_one_partition_do_not_all_land_on_one_broker() -> None:
    known = brokers(None, None, None)
    leaders = {
        place_partitions(known, first_partition=0, count=1, replication_factor=1, start=start)[0][0]
        for start in range(3)
    }
    assert leaders == {1, 2, 3}


def test_a_fenced_broker_may_follow_but_not_lead() -> None:
    known = brokers(None, None, None, fenced=frozenset({2}))
    placed = place_partitions(known, first_partition=0, count=10, replication_factor=3, start=0)
    assert all(replicas[0] != 2 and 2 in replicas for replicas in placed)


def test_a_fenced_broker_gets_a_replica_only_where_there_are_not_enough_others() -> None:
    known = brokers("a", "a", "b", fenced=frozenset({3}))
    placed = place_partitions(known, first_partition=0, count=4, replication_factor=2, start=0)
    assert all(set(replicas) == {1, 2} for replicas in placed)


def test_without_a_living_broker_nothing_is_placed() -> None:
    with pytest.raises(ApiError, match="All brokers are currently fenced") as refused:
        place_partitions(
            brokers(None, fenced=frozenset({1})), first_partition=0, count=1, replication_factor=1, start=0
        )
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
