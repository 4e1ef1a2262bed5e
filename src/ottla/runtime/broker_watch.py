"""Notices at once that a broker's process is gone, so that nobody has to wait for the end of its session.

Theory of operation. The active controller holds an idle connection to each broker that is not fenced. When a process
ends, its machine closes its connections; the watch then connects again at once. If that is refused, nobody listens
there any more: the broker is fenced, within milliseconds of a kill -9. If it succeeds, the connection was lost for
another reason, or the broker is back already and will register. If nothing answers, nothing is known, and the session
decides.

Fencing is always safe, but a broker that lives would come back by its next heartbeat, and be fenced again: with an
address that is wrong in the eyes of the controller this would go on for ever. So a refusal counts only where a
connection has stood before, since the broker was last unfenced; or for brokers that a new controller finds.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from ottla.core.controller.cluster_commands import FenceBroker
from ottla.core.controller.commands import AnswerT, Command
from ottla.model.errors import ApiError
from ottla.runtime.network import PeerError

if TYPE_CHECKING:
    from ottla.core.controller.image import BrokerImage, ImageDelta, MetadataImage
    from ottla.runtime.network import Network

log = structlog.get_logger("ottla.controller")

BACKOFF_SECONDS_MIN: Final = 0.1
BACKOFF_SECONDS_MAX: Final = 5.0
STEADY_SECONDS: Final = 1.0
"""A connection that stood for so long did not fail because somebody closes every connection."""


class Decider(Protocol):
    """The controller, as far as it matters here."""

    @property
    def is_active(self) -> bool: ...

    def subscribe(self, listener: Callable[[], None]) -> None: ...

    async def submit(self, command: Command[AnswerT]) -> AnswerT: ...


class Metadata(Protocol):
    """Where the committed metadata is found."""

    @property
    def node_id(self) -> int: ...

    @property
    def image(self) -> MetadataImage: ...

    def subscribe(self, subscriber: Callable[[MetadataImage, ImageDelta], None]) -> None: ...


class BrokerWatch:
    """Watches the other brokers while the controller here is active, on the listener that brokers use."""

    __slots__ = ("_controller", "_listener", "_metadata", "_network", "_watches")

    def __init__(self, controller: Decider, metadata: Metadata, network: Network, listener: Callable[[], str]) -> None:
        self._controller = controller
        self._metadata = metadata
        self._network = network
        self._listener = listener
        self._watches: dict[int, tuple[int, asyncio.Task[None]]] = {}
        """The epoch that is watched, by broker."""
        controller.subscribe(self._term_changed)
        metadata.subscribe(self._metadata_changed)
        self._term_changed()

    async def close(self) -> None:
        tasks = [task for _, task in self._watches.values()]
        self._stop()
        if tasks:
            await asyncio.wait(tasks)

    def _term_changed(self) -> None:
        self._stop()
        if self._controller.is_active:
            self._follow(self._metadata.image, newly_active=True)

    def _metadata_changed(self, image: MetadataImage, delta: ImageDelta) -> None:
        if delta.brokers_changed and self._controller.is_active:
            self._follow(image, newly_active=False)

    def _stop(self) -> None:
        watches, self._watches = self._watches, {}
        for _, task in watches.values():
            task.cancel()

    def _follow(self, image: MetadataImage, *, newly_active: bool) -> None:
        """Have one watch for each broker that is to be watched."""
        wanted = {
            broker.id: broker
            for broker in image.brokers.values()
            if not broker.fenced and broker.id != self._metadata.node_id
        }
        for broker_id, (epoch, task) in list(self._watches.items()):
            if broker_id not in wanted or wanted[broker_id].epoch != epoch:
                task.cancel()
                del self._watches[broker_id]
        for broker in wanted.values():
            if broker.id not in self._watches:
                task = asyncio.get_running_loop().create_task(self._watch(broker, refusal_counts=newly_active))
                self._watches[broker.id] = (broker.epoch, task)

    async def _watch(self, broker: BrokerImage, *, refusal_counts: bool) -> None:
        """Hold a connection until the broker is gone, or the task is cancelled."""
        loop = asyncio.get_running_loop()
        backoff = BACKOFF_SECONDS_MIN
        while True:
            connection = _Connection()
            connected_at = loop.time()
            try:
                await self._hold(broker, connection)
                refusal_counts = True
                if loop.time() - connected_at >= STEADY_SECONDS:
                    backoff = BACKOFF_SECONDS_MIN
                    continue
            except PeerError as error:
                if error.refused and refusal_counts and await self._fence(broker):
                    if not self._is_unfenced(broker):
                        return
                    # It came back in the same piece of metadata, in which nobody saw it fenced.
                    refusal_counts = False
            if connection.stood and backoff == BACKOFF_SECONDS_MIN:
                # The first break is looked into at once, however short the connection was.
                backoff *= 2
                continue
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, BACKOFF_SECONDS_MAX)

    async def _hold(self, broker: BrokerImage, connection: _Connection) -> None:
        """Return when the connection has broken; PeerError if there is none."""
        endpoint = self._endpoint(broker)
        stream = await self._network.connect(*endpoint, connection)
        connection.stood = True
        try:
            await connection.closed
        finally:
            stream.close()

    def _is_unfenced(self, broker: BrokerImage) -> bool:
        """Whether a broker is, by the metadata, not fenced in this life of it."""
        current = self._metadata.image.brokers.get(broker.id)
        return current is not None and current.epoch == broker.epoch and not current.fenced

    def _endpoint(self, broker: BrokerImage) -> tuple[str, int]:
        if not broker.endpoints:
            raise PeerError(f"broker {broker.id}", "has no address")
        listener = self._listener()
        found = next((point for point in broker.endpoints if point.name == listener), broker.endpoints[0])
        return found.host, found.port

    async def _fence(self, broker: BrokerImage) -> bool:
        log.warning("a broker's process is gone, it is fenced", broker=broker.id, epoch=broker.epoch)
        try:
            await self._controller.submit(FenceBroker(broker.id, broker.epoch))
        except ApiError as error:
            log.warning("a broker could not be fenced", broker=broker.id, reason=str(error))
            return False
        return True


class _Connection:
    """Hears nothing but the end."""

    __slots__ = ("closed", "stood")

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stood = False

    def frame_received(self, frame: memoryview) -> None:
        """Nothing was asked."""

    def stream_closed(self, error: PeerError) -> None:
        with contextlib.suppress(asyncio.InvalidStateError):
            self.closed.set_result(None)
