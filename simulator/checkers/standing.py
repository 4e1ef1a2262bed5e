"""How a cluster stands: who decides, who runs and who is in sync. Nothing of it changes while it is left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from simulator.active_controller import ActiveController
    from simulator.node import SimulatedNode

Standing: TypeAlias = dict[str, object]


def standing(controller: ActiveController, nodes: Sequence[SimulatedNode]) -> Standing:
    """By name. Who leads is left out: leadership goes back to the preferred replicas by itself."""
    found: Standing = {f"starts of {node.host}": node.starts for node in nodes}
    active = controller.find()
    if active is None or active.services is None or active.quorum is None:
        return {**found, "controller": None}
    found["controller"] = f"{active.host} in epoch {active.quorum.core.epoch}"
    for name, topic in active.services.image.topics.items():
        for index, partition in enumerate(topic.partitions):
            found[f"in sync for {name}-{index}"] = sorted(partition.isr)
    return found


def changes(before: Standing, after: Standing) -> str:
    """What is another; empty if nothing is."""
    names = dict.fromkeys((*before, *after))
    return "; ".join(
        f"{name}: {before.get(name)}, then {after.get(name)}" for name in names if before.get(name) != after.get(name)
    )
