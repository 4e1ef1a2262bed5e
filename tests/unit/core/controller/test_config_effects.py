"""Configs that decide who may lead take effect with the record that changes them."""

from __future__ import annotations

import pytest

from ottla.core.controller.commands import ConfigChange, IncrementalAlterConfigs, NewTopic, ResourceChange
from tests.unit.core.controller.cluster import Cluster

TOPIC, BROKER = 2, 4


def change(cluster: Cluster, kind: int, name: str, key: str, value: str, *, validate_only: bool = False) -> None:
    changes = [ResourceChange(kind, name, [ConfigChange(key, 0, value)])]
    [answer] = cluster.submit(IncrementalAlterConfigs(changes, validate_only=validate_only))
    assert answer.outcome.message is None


def one_in_sync() -> Cluster:
    cluster = Cluster(brokers=3, config={"min.insync.replicas": "2"})
    cluster.create(NewTopic("t", assignments=[(0, [1, 2, 3])]))
    cluster.fence(2)
    cluster.fence(3)
    assert cluster.partition().elr == (3,)
    return cluster


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
def test_with_fewer_needed_in_sync_nobody_else_is_eligible(kind: int, name: str) -> None:
    cluster = one_in_sync()
    change(cluster, kind, name, "min.insync.replicas", "1", validate_only=True)
    assert cluster.partition().elr == (3,)
    change(cluster, kind, name, "min.insync.replicas", "1")
    assert cluster.partition().elr == ()
    assert cluster.replayed() == cluster.image


def test_with_more_needed_in_sync_nobody_becomes_eligible() -> None:
    cluster = one_in_sync()
    change(cluster, TOPIC, "t", "min.insync.replicas", "3")
    assert cluster.partition().elr == (3,)


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
def test_where_unclean_elections_are_allowed_from_now_on_there_is_one(kind: int, name: str) -> None:
    cluster = one_in_sync()
    cluster.fence(1)
    cluster.heartbeat(2)
    assert cluster.partition().leader == -1
    change(cluster, kind, name, "unclean.leader.election.enable", "true")
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))


def test_other_configs_touch_no_partition() -> None:
    cluster = one_in_sync()
    written = len(cluster.log)
    change(cluster, TOPIC, "t", "retention.ms", "1000")
    assert len(cluster.log) == written + 1
