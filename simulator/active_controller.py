"""Who is the active controller, and whose word about the cluster counts.

One that is paused or cut off believes that it is the one until it hears of a newer epoch. So it is the one of the
newest epoch that anybody has known of; where that one is gone, nobody is until the next one is elected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.node import SimulatedNode


class ActiveController:
    """Looks for it among the nodes."""

    def __init__(self, nodes: Sequence[SimulatedNode]) -> None:
        self._nodes = nodes
        self._epoch = -1

    def find(self) -> SimulatedNode | None:
        found: SimulatedNode | None = None
        for node in self._nodes:
            quorum, services = node.quorum, node.services
            if quorum is None:
                continue
            epoch = quorum.core.epoch
            if epoch > self._epoch:
                self._epoch, found = epoch, None
            if epoch == self._epoch and found is None and services is not None and services.controller.is_active:
                found = node
        return found
