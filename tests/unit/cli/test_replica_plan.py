"""Plans are even, respect racks, copy no more than they must, and are the same each time."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest

from ottla.cli.failures import CommandError
from ottla.cli.replica_plan import Move, Placement, Planner, new_replicas
from ottla.model.ids import TopicPartition

NO_RACKS = {1: None, 2: None, 3: None}


def placement(*replicas: tuple[int, ...], topic: str = "t") -> Placement:
    return {TopicPartition(topic, index): brokers for index, brokers in enumerate(replicas)}


def planned(
    everything: Placement, racks: Mapping[int, str | None], *, factor: int | None = None, spread: bool = True
) -> list[Move]:
    planner = Planner(everything, racks)
    for partition in everything:
        planner.place(partition, factor)
    if spread:
        planner.spread()
        planner.share_leaders()
    return planner.moves()


def loads(everything: Placement, moves: list[Move]) -> tuple[Counter[int], Counter[int]]:
    after = dict(everything) | {move.partition: move.after for move in moves}
    replicas = Counter(broker for brokers in after.values() for broker in brokers)
    return replicas, Counter(brokers[0] for brokers in after.values())


def test_what_is_even_stays_as_it_is() -> None:
    assert planned(placement((1, 2), (2, 3), (3, 1)), NO_RACKS) == []


def test_a_new_broker_gets_its_share_and_no_more_is_copied_than_that() -> None:
    everything = placement(*[(1, 2), (2, 3), (3, 1)] * 4)
    moves = planned(everything, {**NO_RACKS, 4: None})
    replicas, leaders = loads(everything, moves)
    assert set(replicas.values()) == {6}
    assert set(leaders.values()) == {3}
    assert new_replicas(moves) == 6


def test_a_broker_is_emptied_and_the_others_share_what_it_had() -> None:
    everything = placement(*[(1, 2), (2, 3), (3, 1), (4, 1), (2, 4), (4, 3)] * 2)
    moves = planned(everything, NO_RACKS, spread=False)
    replicas, _ = loads(everything, moves)
    assert 4 not in replicas
    assert set(replicas.values()) == {8}
    assert {move.partition.partition for move in moves} == {3, 4, 5, 9, 10, 11}
    assert all(len(move.adding) == 1 for move in moves)
    assert all(
        before == after or before == 4 for move in moves for before, after in zip(move.before, move.after, strict=True)
    )


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    everything = placement(*[(1, 2)] * 4)
    moves = planned(everything, racks, factor=2, spread=False)
    assert moves == []
    moves = planned(placement(*[(1,)] * 4), racks, factor=2)
    assert all(len({racks[broker] for broker in move.after}) == 2 for move in moves)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_the_replication_factor_changes(factor: int) -> None:
    everything = placement((1, 2), (2, 3), (3, 1))
    moves = planned(everything, NO_RACKS, factor=factor)
    replicas, leaders = loads(everything, moves)
    assert set(replicas.values()) == {factor}
    assert set(leaders.values()) == {1}


def test_fewer_replicas_are_taken_from_racks_with_several() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b"}
    (move,) = planned(placement((1, 2, 3)), racks, factor=2, spread=False)
    assert move.after == (1, 3)


def test_too_few_brokers_are_refused() -> None:
    with pytest.raises(CommandError, match="needs 3 brokers, and there are 2"):
        planned(placement((1, 2, 3)), {1: None, 2: None})


def test_only_the_partitions_that_are_placed_move_though_all_count() -> None:
    everything = {**placement((1,), (1,), (1,)), **placement((2,), topic="u")}
    planner = Planner(everything, {1: None, 2: None})
    planner.place(TopicPartition("t", 0))
    planner.place(TopicPartition("t", 1))
    planner.spread()
    assert len(planner.moves()) == 1
    assert planner.moves()[0].partition.topic == "t"


def test_any_cluster_comes_out_even_and_the_same_twice() -> None:
    rng = random.Random(11)
    for _ in range(60):
        brokers = rng.sample(range(1, 20), rng.randint(3, 8))
        racks = {broker: rng.choice(["a", "b", "c", None]) for broker in brokers}
        factor = rng.randint(1, 3)
        everything = placement(*[tuple(rng.sample(brokers, factor)) for _ in range(rng.randint(1, 40))])
        allowed = dict.fromkeys(rng.sample(brokers, rng.randint(factor, len(brokers))))
        moves = planned(everything, dict(allowed))
        assert moves == planned(everything, dict(allowed))
        replicas, leaders = loads(everything, moves)
        assert set(replicas) <= set(allowed)
        counts = [replicas[broker] for broker in allowed]
        assert max(counts) - min(counts) <= 1
        assert max(leaders.values()) <= -(-len(everything) // len(allowed)) + 1
        with_racks = planned(everything, {broker: racks[broker] for broker in allowed})
        for move in with_racks:
            assert len(set(move.after)) == len(move.after) == factor
