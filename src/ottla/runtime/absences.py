"""Brokers that are gone as far as can be seen here, while the metadata still shows them; and those that just went.

Theory of operation. When a broker's process ends, its connections break, and clients ask at once who leads now. For the
few milliseconds until the controller has fenced it, the metadata names the dead broker; a client that is told so waits
for a timer of its own, a second or more. So who lost a connection to a broker looks there again: for as long as nobody
listens, answers about leaders wait, for a bounded time, and then say that there is none just now.

A broker that left is shown to clients a while longer than it is there, as they will most likely see it again soon.
librdkafka takes a broker that an answer lacks apart, and is not good at it: a partition that the same answer moves to
another leader is mislaid until a refresh, a second later; and a call that needs a broker which comes back just then may
never return.

What an editor must keep true: this changes what clients are told, and nothing else. It decides nothing, since one that
is refused here may well be reached by others.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.runtime.network import PeerError

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.runtime.network import Network
    from ottla.runtime.peer_targets import Address

LOOK_AGAIN_SECONDS: Final = 0.25
PROOF_SECONDS: Final = 0.05
"""A process that ends may take a connection before its listener is closed; one that stood so long is real."""
ANSWERS_WAIT_SECONDS_MAX: Final = 1.0
"""After so long there may be no controller to say who leads, and the answer is worth more than the truth."""
SHOWN_SECONDS: Final = 60.0
"""Longer than a restart takes."""


class _Absence:
    """A broker seems to be gone; `over` is done when it is there, or when the metadata knows."""

    __slots__ = ("epoch", "over", "since", "task")

    def __init__(self, epoch: int, loop: asyncio.AbstractEventLoop) -> None:
        self.epoch = epoch
        self.since = loop.time()
        self.over: asyncio.Future[None] = loop.create_future()
        self.task: asyncio.Task[None] | None = None


class Absences:
    """`brokers` has the ids of those that seem to be gone; it is empty nearly always."""

    __slots__ = ("_address_of", "_departed", "_image", "_network", "_present", "brokers")

    def __init__(
        self, network: Network, image: Callable[[], MetadataImage], address_of: Callable[[int], Address | None]
    ) -> None:
        self._network = network
        self._image = image
        self._address_of = address_of
        self._present: dict[int, None] | None = None
        """Brokers that were not fenced when the metadata was last seen; None before that: any may just have left."""
        self._departed: dict[int, asyncio.TimerHandle] = {}
        """Those that are shown though they are fenced, and what ends that."""
        self.brokers: dict[int, _Absence] = {}

    def connection_lost(self, broker_id: int) -> None:
        """The other side has closed a connection to a broker."""
        broker = self._image().brokers.get(broker_id)
        if broker is None or broker.fenced or broker_id in self.brokers:
            return
        loop = asyncio.get_running_loop()
        absence = self.brokers[broker_id] = _Absence(broker.epoch, loop)
        absence.task = loop.create_task(self._look(broker_id, absence))
        absence.task.add_done_callback(lambda _: self._end(broker_id, absence))

    def brokers_changed(self, image: MetadataImage) -> None:
        """The metadata says something else about brokers now."""
        for broker_id, absence in list(self.brokers.items()):
            if not self._is_shown(image, broker_id, absence.epoch):
                self._end(broker_id, absence)
        for broker_id in image.brokers if self._present is None else self._present:
            broker = image.brokers.get(broker_id)
            if broker is not None and broker.fenced:
                self._show_departed(broker_id)
        self._present = {broker.id: None for broker in image.brokers.values() if not broker.fenced}

    def is_shown(self, broker_id: int) -> bool:
        """Whether clients hear of a fenced broker, because it was there just now."""
        return broker_id in self._departed

    def _show_departed(self, broker_id: int) -> None:
        before = self._departed.pop(broker_id, None)
        if before is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._departed[broker_id] = loop.call_later(SHOWN_SECONDS, self._departed.pop, broker_id, None)

    async def settled(self) -> None:
        """Return when the metadata knows about every absent broker, or when it takes too long."""
        # What happened to other connections before the question came is heard of first.
        await asyncio.sleep(0)
        if self.brokers:
            earliest = asyncio.get_running_loop().time() - ANSWERS_WAIT_SECONDS_MAX
            waits = [absence.over for absence in self.brokers.values() if absence.since > earliest]
            if waits:
                await asyncio.wait(waits, timeout=ANSWERS_WAIT_SECONDS_MAX)

    def close(self) -> None:
        for timer in self._departed.values():
            timer.cancel()
        for broker_id, absence in list(self.brokers.items()):
            self._end(broker_id, absence)

    def _end(self, broker_id: int, absence: _Absence) -> None:
        if self.brokers.get(broker_id) is absence:
            del self.brokers[broker_id]
        if absence.task is not None:
            absence.task.cancel()
        if not absence.over.done():
            absence.over.set_result(None)

    async def _look(self, broker_id: int, absence: _Absence) -> None:
        """Return when the broker is there, or cannot be told from one that is."""
        while self._is_shown(self._image(), broker_id, absence.epoch):
            address = self._address_of(broker_id)
            try:
                if address is None or await self._stands(*address):
                    return
            except PeerError as error:
                if not error.refused:
                    return
                await asyncio.sleep(LOOK_AGAIN_SECONDS)

    @staticmethod
    def _is_shown(image: MetadataImage, broker_id: int, epoch: int) -> bool:
        broker = image.brokers.get(broker_id)
        return broker is not None and not broker.fenced and broker.epoch == epoch

    async def _stands(self, host: str, port: int) -> bool:
        """Whether a new connection lives for a moment."""
        probe = _Probe()
        stream = await self._network.connect(host, port, probe)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PROOF_SECONDS):
                    await probe.closed.wait()
            return not probe.closed.is_set()
        finally:
            stream.close()


class _Probe:
    """Asks nothing."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def frame_received(self, frame: memoryview) -> None:
        """Nothing was asked."""

    def stream_closed(self, error: PeerError) -> None:
        self.closed.set()
