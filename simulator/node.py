"""A machine with a disk, and a real broker on it that is started, killed, paused and started again.

Theory of operation. The machine outlives its process: its medium and its clock stay. A start makes a new loop, a new
mount, a new world and a new `Broker` on them. A kill drops the loop and the mount where they stand; what the process
had written is on the medium unless the power goes with it. What is left of a dead process is garbage: whatever it
still does reaches a dead mount and a dead loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker import Broker
from ottla.log.directory import CLEAN_SHUTDOWN
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import OttlaError
from ottla.runtime.world import World
from simulator import broker_logs
from simulator.chance import uuids
from simulator.disk import Medium
from simulator.machine import LazyRecordWork, MachineClock, ProcessClock, SimulatedThreads
from simulator.mount import Mount
from simulator.node_loop import NodeLoop
from simulator.serving import ServingShare, SimulatedListener

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.model.configs.listeners import Endpoint
    from ottla.runtime.partition import Partition
    from ottla.runtime.quorum_node import QuorumNode
    from ottla.server.connection import Dispatch
    from ottla.server.share import LoopShare
    from simulator.room import Room

DATA = "/data"


class SimulatedNode:
    """One machine and whatever runs on it."""

    def __init__(self, room: Room, node_id: int, properties: Mapping[str, str], *, port: int = 9092) -> None:
        self.room = room
        self.node_id = node_id
        self.host = f"node-{node_id}"
        self.port = port
        self.medium = Medium(lambda: self.clock.now_ms() * 1000)
        self.clock = MachineClock(room.timeline)
        self.loop: NodeLoop | None = None
        self.mount = Mount(self.medium)
        self.threads: SimulatedThreads | None = None
        self.broker: Broker | None = None
        self.is_ready = False
        self.starts = 0
        self.ended_by_itself = False
        self.on_event: Callable[[SimulatedNode], None] | None = None
        """Called after each event of its processes."""
        self.loses_cache = False
        """A sync has failed: what was not on the medium goes with the process, since the system dropped it."""
        self.may_lack_data = False
        """It lost what it had not synced, and has not caught up with the others since."""
        self.is_unclean = False
        """Its process ended where it stood, and it has not caught up since: others do not believe that it has all."""
        self.rotten: str | None = None
        """A file of its disk that is not what was written."""
        self.rot_is_known = False
        self.is_retired = False
        """An operator has taken it away: nobody starts it."""
        self.disk_lost = False
        """Its disk was replaced, or is rotten, and it has not caught up with the others since."""
        self._disk_full = False
        self._power_rng = room.chance.stream(f"power/{self.host}")
        self._config = BrokerConfig.from_properties(
            {
                "node.id": str(node_id),
                "log.dirs": DATA,
                "listeners": f"PLAINTEXT://{self.host}:{port}",
                **properties,
            }
        )

    @property
    def is_alive(self) -> bool:
        return self.loop is not None

    @property
    def quorum(self) -> QuorumNode | None:
        """Its part in the metadata quorum, once it runs."""
        quorum = None if self.broker is None else self.broker._quorum
        return quorum if quorum is not None and hasattr(quorum, "core") and hasattr(quorum, "log") else None

    @property
    def services(self) -> Services | None:
        return getattr(self.broker, "_services", None)

    @property
    def broker_epoch(self) -> int:
        """Of its registration in this life, -1 before."""
        lifecycle = None if self.broker is None else self.broker._lifecycle
        return -1 if lifecycle is None else lifecycle.epoch

    @property
    def partitions(self) -> list[Partition]:
        """The replicas that it hosts, once it has any."""
        services = self.services
        return [] if services is None else list(services.partitions)

    # -- the process

    def start(self) -> None:
        """Power on, and a new process."""
        if self.loop is not None or self.is_retired:
            return
        self.starts += 1
        self.ended_by_itself = False
        room = self.room
        room.network.hosts_down.discard(self.host)
        loop = self.loop = room.process(self.host)
        if self.on_event is not None:
            loop.watch = partial(self.on_event, self)
        self.mount = mount = Mount(self.medium)
        mount.faults.full = self._disk_full
        rng = room.chance.stream(f"world/{self.host}/{self.starts}")
        self.threads = SimulatedThreads(loop, room.chance.stream(f"threads/{self.host}/{self.starts}"))
        world = World(
            clock=ProcessClock(self.clock, loop),
            offload=self.threads,
            disk=mount,
            rng=rng,
            new_uuid=lambda: uuids(rng),
            network=room.network_of(self.host, loop),
        )
        room.note(self.host, "start", f"process {self.starts}")
        loop.start(self._live(loop, world))

    async def _live(self, loop: NodeLoop, world: World) -> None:
        worker = LazyRecordWork(self.mount, self.room.counts)
        broker = self.broker = Broker(self._config, world, listen=self._listener, worker=worker)
        try:
            await broker.start()
        except (OttlaError, OSError) as error:
            self._start_failed(error)
            return
        self.is_ready = True
        self.room.note(self.host, "ready", "")
        await broker.failed.wait()
        self.room.note(self.host, "gives up", "")
        await self._stop(broker)
        self.ended_by_itself = True

    def _start_failed(self, error: Exception) -> None:
        text = broker_logs.describe(error)
        self.room.note(self.host, "start failed", text)
        if self._disk_is_sound():
            self.room.findings.add("a node with a sound disk starts", f"{self.host}: {text}")
        self.rot_noticed()
        self.ended_by_itself = True
        self._end(silently=False)

    def _disk_is_sound(self) -> bool:
        faults = self.mount.faults
        return self.rotten is None and not (faults.full or faults.fail_writes or faults.sync_failed)

    def _listener(self, endpoint: Endpoint, dispatch: Dispatch, share: LoopShare) -> SimulatedListener:
        loop, services = self.loop, self.services
        if loop is None or services is None:
            raise OttlaError("a dead process listens")
        rng = self.room.chance.stream(f"turns/{self.host}/{self.starts}/{endpoint.listener}")
        cold_rng = self.room.chance.stream(f"cold/{self.host}/{self.starts}/{endpoint.listener}")
        served = ServingShare(endpoint.listener, loop, dispatch, services, rng, cold_rng, self.room.counts)
        return SimulatedListener(self.room.network, (endpoint.host, endpoint.port), served)

    def kill(self) -> None:
        """kill -9: the process is gone, its machine remembers what it wrote."""
        if self.loop is not None:
            self.room.note(self.host, "kill", "")
            self._end(silently=False)

    def lose_power(self) -> None:
        """The machine is gone: what was not synced may be too, and nobody is told."""
        self.room.note(self.host, "power loss", "")
        self.room.network.hosts_down.add(self.host)
        self._end(silently=True)
        self.medium.lose_power(self._power_rng)
        self.may_lack_data = True

    def kill_at_operation(self, count: int, kill: Callable[[], None], may_be: Callable[[], bool]) -> None:
        """Let it happen in the middle of one of its next operations on the disk, if it may be by then."""
        faults = self.mount.faults
        faults.on_kill, faults.may_kill = kill, may_be
        faults.kill_after = faults.operations + count

    def stop(self) -> None:
        """SIGTERM: a clean stop."""
        loop, broker = self.loop, self.broker
        if loop is None or broker is None or not self.is_ready:
            self.kill()
            return
        self.room.note(self.host, "stop", "")
        loop.start(self._stop(broker))

    async def _stop(self, broker: Broker) -> None:
        self.is_ready = False
        try:
            await broker.stop()
            self.room.note(self.host, "stopped", "")
        except (OttlaError, OSError) as error:
            text = broker_logs.describe(error)
            self.room.note(self.host, "stop failed", text)
            if self._disk_is_sound():
                self.room.findings.add("a node with a sound disk stops", f"{self.host}: {text}")
            self._end(silently=False)
        else:
            # One that gave up because of its disk stops, too, but does not say that it ended well.
            self._end(silently=False, is_clean=self.medium.find(f"{DATA}/{CLEAN_SHUTDOWN}") is not None)

    def _end(self, *, silently: bool, is_clean: bool = False) -> None:
        loop, self.loop, self.broker, self.is_ready = self.loop, None, None, False
        self.mount.alive = False
        self.is_unclean = self.is_unclean or not is_clean
        if loop is not None:
            loop.kill()
            self.room.network.process_gone(self.host, loop, silently=silently)
        if self.loses_cache:
            self.loses_cache = False
            self.medium.drop_cache()
            self.may_lack_data = True

    def sync_failed(self) -> None:
        """What was not on the medium goes with the process."""
        self.loses_cache = self.may_lack_data = True

    @property
    def disk_full(self) -> bool:
        return self._disk_full

    @disk_full.setter
    def disk_full(self, full: bool) -> None:
        self._disk_full = self.mount.faults.full = full

    def replace_disk(self) -> None:
        """Of a node that is down: everything on it is gone."""
        self.room.note(self.host, "new disk", "")
        self.medium.wipe()
        self.rotten, self.rot_is_known = None, False
        self.may_lack_data = self.disk_lost = True

    def retire(self) -> None:
        """Stop, and stay so."""
        self.is_retired = True
        self.stop()

    def renew(self) -> None:
        """Start with an empty disk; it held nothing."""
        self.kill()
        self.replace_disk()
        self.disk_lost = self.is_retired = False
        self.start()

    def rot(self, number: int) -> bool:
        """Of a node that is down: a bit of what has a checksum is another."""
        self.rotten = self.medium.rot(number, (".log", ".checkpoint"))
        if self.rotten is not None:
            self.room.note(self.host, "bit rot", self.rotten)
            self.may_lack_data = self.disk_lost = True
        return self.rotten is not None

    def rot_noticed(self) -> None:
        """Somebody has seen that its disk is bad, or will not."""
        self.rot_is_known = self.rotten is not None

    def pause(self) -> None:
        """SIGSTOP."""
        if self.loop is not None:
            self.room.note(self.host, "pause", "")
            self.loop.pause()

    def resume(self) -> None:
        """SIGCONT."""
        if self.loop is not None:
            self.room.note(self.host, "resume", "")
            self.loop.resume()
