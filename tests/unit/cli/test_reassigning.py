"""Moves are begun, watched to their end and checked; what goes wrong is said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import pytest

from ottla.cli import reassigning, replication_throttle
from ottla.cli.failures import CommandError
from ottla.cli.reassigning import carry_out
from ottla.cli.replica_plan import Move
from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError
from ottla.client.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from ottla.client.reassignments import Reassignment
from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

MOVES = [Move(TopicPartition("t", 0), (1, 2), (2, 3)), Move(TopicPartition("t", 1), (2, 1), (1, 3))]


class World:
    """A cluster in which a move takes `polls` looks; stands in for everything that `carry_out` talks to."""

    def __init__(self, polls: int = 2) -> None:
        self.settings = ClientSettings.of("h:1")
        self.metadata = ClusterMetadata()
        self.polls = polls
        self.refused: dict[TopicPartition, BrokerError] = {}
        self.replicas: dict[TopicPartition, tuple[int, ...]] = {}
        self.interrupted = False
        self.configs: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.elected: list[TopicPartition] = []

    def refresh(self, _topics: object) -> None: ...

    def begin(self, moves: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, BrokerError]:
        for partition, replicas in moves.items():
            if partition not in self.refused:
                self.replicas.setdefault(partition, tuple(replicas))
        return self.refused

    def under_way(self) -> dict[TopicPartition, Reassignment]:
        if self.interrupted:
            raise KeyboardInterrupt
        self.polls -= 1
        moving = {TopicPartition("somebody-elses", 0): Reassignment((1, 2), (2,), ())}
        if self.polls >= 0:
            moving |= {partition: Reassignment((2, 3, 1), (3,), (1,)) for partition in self.replicas}
        return moving

    def list_topics(self) -> list[TopicMetadata]:
        return [
            TopicMetadata(
                name="t",
                partitions=tuple(
                    PartitionMetadata(partition.partition, 1, 0, replicas, replicas, (), ErrorCode.NONE)
                    for partition, replicas in self.replicas.items()
                ),
            )
        ]

    def describe_log_dirs(self) -> list[object]:
        return []

    def alter_configs(
        self, _kind: object, name: str, *, set_to: Mapping[str, str] | None = None, unset: Iterable[str] = ()
    ) -> None:
        self.configs.append((name, dict(set_to or {}), tuple(unset)))

    def elect_leaders(self, _kind: object, partitions: Iterable[TopicPartition]) -> list[object]:
        self.elected += partitions
        return []


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    for name in ("Admin", "Reassignments", "ClusterChanges"):
        monkeypatch.setattr(reassigning, name, lambda _cluster: made)
    monkeypatch.setattr(reassigning, "POLL_SECONDS", 0)
    monkeypatch.setattr(reassigning, "METADATA_WAIT_MS", 0)
    return made


def run(world: World, **options: Any) -> None:
    carry_out(cast(Cluster, world), MOVES, **({"throttle_bytes": None, "wait": True} | options))


def test_all_move_and_the_first_replicas_lead(world: World) -> None:
    run(world)
    assert world.polls == -1
    assert world.elected == [move.partition for move in MOVES]
    assert world.configs == []


def test_without_waiting_nothing_is_watched(world: World) -> None:
    run(world, wait=False)
    assert (world.polls, world.elected) == (2, [])


def test_what_is_refused_is_said_and_the_rest_moves(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.refused = {TopicPartition("t", 1): BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 3 is no broker")}
    with pytest.raises(CommandError, match="1 of 2 partitions could not be reassigned"):
        run(world)
    assert "broker 3 is no broker" in capsys.readouterr().err
    assert world.elected == [TopicPartition("t", 0)]


def test_the_throttle_is_set_before_and_lifted_after(world: World) -> None:
    run(world, throttle_bytes=1000)
    rates = {replication_throttle.LEADER_RATE: "1000", replication_throttle.FOLLOWER_RATE: "1000"}
    replicas = {
        replication_throttle.LEADER_REPLICAS: "0:1,0:2,1:2,1:1",
        replication_throttle.FOLLOWER_REPLICAS: "0:3,1:3",
    }
    assert world.configs[:2] == [("", rates, ()), ("t", replicas, ())]
    assert world.configs[2:] == [("t", {}, tuple(replicas)), ("", {}, tuple(rates))]


def test_without_waiting_the_throttle_stays(world: World) -> None:
    run(world, throttle_bytes=1000, wait=False)
    assert len(world.configs) == 2


def test_ctrl_c_leaves_the_moves_and_says_so(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.interrupted = True
    with pytest.raises(KeyboardInterrupt):
        run(world, throttle_bytes=1000)
    said = capsys.readouterr().err
    assert "--cancel" in said
    assert "--clear-throttle" in said


def test_a_move_that_somebody_stopped_is_noticed(world: World) -> None:
    world.replicas[TopicPartition("t", 1)] = (2, 1)
    with pytest.raises(CommandError, match="1 of 2 partitions are not where they were to be"):
        run(world)


def test_a_standstill_is_said_once(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reassigning, "STALLED_SECONDS", -1)
    world.polls = 5
    run(world)
    said = capsys.readouterr().err
    assert said.count("nothing has moved") == 1
    assert "brokers 2, 3 are not running" in said
