"""The machine room: the timeline, the network, the machines and all that is found out about them in one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ottla.model.errors import CorruptLogError, StorageError
from simulator import broker_logs
from simulator.chance import Chance
from simulator.findings import Findings
from simulator.network import HostNetwork, SimulatedNetwork
from simulator.node_loop import NodeLoop
from simulator.timeline import Timeline
from simulator.trace import Trace


class Room:
    """What everything in a run shares."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.chance = Chance(seed)
        self.timeline = Timeline()
        self.trace = Trace(self.timeline, wanted=traced)
        self.findings = Findings(lambda: self.timeline.now_us)
        self.network = SimulatedNetwork(self.timeline, self.chance.stream("network"), self.trace)
        self.counts: Counter[str] = Counter()
        """What happened, and how often: faults, changes, operations that succeeded."""
        self.has_bad_disk: Callable[[str], bool] = lambda host: False
        """Whether a machine's disk has failed while its present process ran: then it may say so."""
        self.rot_seen: Callable[[str], bool] = lambda text: False
        """Told when a client finds something corrupt; whether a disk is known to be rotten."""
        broker_logs.capture(self._logged, everything=traced)

    def process(self, name: str) -> NodeLoop:
        """A loop for a new process. A name may be used again after a restart, with other chance."""
        rng = self.chance.stream(f"loop/{name}/{self.timeline.now_us}")
        loop = NodeLoop(self.timeline, name, rng)  # type: ignore[abstract]  # What nobody calls raises.
        loop.on_error = lambda message, error: self._failed(name, message, error)
        return loop

    def network_of(self, host: str, loop: NodeLoop) -> HostNetwork:
        return HostNetwork(self.network, host, loop)

    def note(self, place: str, kind: str, text: str) -> None:
        self.trace.note(place, kind, text)

    def _failed(self, name: str, message: str, error: BaseException | None) -> None:
        text = message if error is None else f"{message}: {broker_logs.describe(error)}"
        self.note(name, "error", text)
        if error is not None:
            self.findings.add("nothing fails unnoticed", f"{name}: {text}")

    def _logged(self, node: str, level: str, text: str, error: BaseException | None) -> None:
        if error is not None:
            text += f" {broker_logs.describe(error)}"
        excused = isinstance(error, OSError | StorageError | CorruptLogError) and self.has_bad_disk(node)
        if error is not None and not excused:
            self.findings.add("no request fails for a reason that nobody expected", f"{node}: {text}")
        self.note(node, level, text)
