"""Whose word about the cluster counts: one that was paused is not believed because it is the only one left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from simulator.active_controller import ActiveController
from simulator.node import SimulatedNode


class Node:
    """As much of a node as is looked at."""

    def __init__(self, epoch: int, *, is_active: bool) -> None:
        self.quorum: SimpleNamespace | None = SimpleNamespace(core=SimpleNamespace(epoch=epoch))
        self.services: SimpleNamespace | None = SimpleNamespace(controller=SimpleNamespace(is_active=is_active))

    def die(self) -> None:
        self.quorum = self.services = None


def among(*nodes: Node) -> ActiveController:
    return ActiveController([cast(SimulatedNode, node) for node in nodes])


def test_the_one_of_the_newest_epoch_counts() -> None:
    paused, newer, other = Node(1, is_active=True), Node(2, is_active=True), Node(2, is_active=False)
    for nodes in ((paused, newer, other), (newer, paused, other)):
        found: object = among(*nodes).find()
        assert found is newer


def test_one_of_an_older_epoch_does_not_count_when_the_newer_one_is_gone() -> None:
    paused, newer, other = Node(1, is_active=True), Node(2, is_active=True), Node(2, is_active=False)
    controller = among(paused, newer, other)
    newer.die()
    assert controller.find() is None, "another node knows of the newer epoch"
    other.die()
    assert controller.find() is None, "it has been seen"


def test_nobody_is_one_while_nodes_start() -> None:
    node = Node(0, is_active=False)
    node.die()
    assert among(node).find() is None
