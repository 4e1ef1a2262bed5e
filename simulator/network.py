"""A network of connections that carry frames in order, late, or not at all.

Theory of operation. A connection has two ends, each held by a process. A frame that is sent arrives after a delay
that the link between the two hosts draws, never before the one ahead of it. Where a link is cut in that direction
frames wait at the receiving end, as a kernel sends them again, and arrive when it heals. A reset travels by itself
and overtakes, so that what was behind it is lost: a suffix. When a process is killed its machine resets its
connections and refuses new ones; when the power goes nobody says anything, until the machine is back and is asked
about connections that it does not know.

What would have overtaken comes together with what was ahead of it, as one receive, and so does all that came while a
process was paused. How much that is chance decides, since it draws the delays.

What an editor must keep true: frames of one direction never overtake one another; an end that is closed gets nothing
more, and is told so once.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final, Protocol

from ottla.runtime.network import PeerError, StreamHandler
from simulator.node_loop import NodeLoop
from simulator.timeline import SECOND_US, Timeline
from simulator.trace import Trace

CONNECT_SECONDS_MAX: Final = 10.0
DELAY_US_MIN: Final = 30
DELAY_US_SPREAD: Final = 300
FRAME_MARK, CLOSE_MARK = 1, 2


class StreamReader(Protocol):
    """Whoever takes what comes as a socket gives it: the bytes of one receive. Frames in it are whole."""

    def bytes_received(self, data: memoryview) -> None:
        """Frames, each behind its size; they may be kept only as copies."""

    def stream_closed(self, error: PeerError) -> None:
        """Called once; nothing comes afterwards."""


class Acceptor(Protocol):
    """Whoever listens at an address."""

    @property
    def loop(self) -> NodeLoop: ...

    def welcome(self, end: End) -> None:
        """Take a new connection; gives its end a handler."""


class Link:
    """One direction between two hosts."""

    __slots__ = ("cuts", "delay_us_extra", "source", "target")

    def __init__(self, source: str, target: str) -> None:
        self.source = source
        self.target = target
        self.cuts = 0
        """How many faults cut it now."""
        self.delay_us_extra = 0


class End:
    """One side of a connection; a `Stream` to whoever holds it."""

    __slots__ = (
        "_arrival",
        "_arrival_us",
        "_inbox",
        "_is_readable",
        "_waiting",
        "handler",
        "host",
        "incoming",
        "loop",
        "network",
        "number",
        "open",
        "peer",
        "reader",
    )

    def __init__(self, network: SimulatedNetwork, number: int, host: str, loop: NodeLoop, incoming: Link) -> None:
        self.network = network
        self.number = number
        self.host = host
        self.loop = loop
        self.incoming = incoming
        self.handler: StreamHandler | None = None
        self.reader: StreamReader | None = None
        """Instead of a handler."""
        self.open = True
        self.peer: End = self
        self._arrival: Arrival | None = None
        """The last one that is on its way."""
        self._arrival_us = 0
        self._waiting: list[bytes | None] = []
        self._inbox: list[bytes] = []
        """What has arrived and was not received."""
        self._is_readable = False
        """Its process will receive what is there."""

    def send(self, frame: bytes | bytearray) -> None:
        """Queue a frame, size not included."""
        if self.open and self.loop.alive:
            self.network.carry(self, bytes(frame))

    def close(self) -> None:
        """An orderly end: what was sent before it arrives."""
        if self.open and self.loop.alive:
            self.open = False
            self.network.forget(self)
            self.network.carry(self, None)

    def expect(self, frame: bytes | None, arrival_us: int) -> None:
        """A frame, or the end of all frames, is on its way to this end."""
        arrival = self._arrival
        if arrival is not None and arrival_us <= self._arrival_us:
            arrival.frames.append(frame)
            return
        self._arrival_us = max(arrival_us, self._arrival_us + 1)
        self._arrival = Arrival(self, frame)
        self.network.timeline.at(self._arrival_us, self._arrival)

    def arrive(self, arrival: Arrival) -> None:
        """It is here, unless the link is cut."""
        if arrival is self._arrival:
            self._arrival = None
        frames = arrival.frames
        if self.incoming.cuts or self._waiting:
            self._waiting += frames
            self.network.stalled[self] = None
        elif not self.open:
            if frames[0] is not None:
                self.network.nobody_home(self)
        else:
            self._inbox += [frame for frame in frames if frame is not None]
            if self._inbox and not self._is_readable:
                self._is_readable = True
                self.loop.enter(self.receive)
            if frames[-1] is None:
                self.network.note_closed(self, "closed by the other side")

    def receive(self) -> None:
        """Hand over what has arrived, if there is somebody to take it."""
        self._is_readable = False
        if not self.open or (self.reader is None and self.handler is None):
            return
        inbox, self._inbox = self._inbox, []
        if self.reader is not None and inbox:
            buffer = bytearray()
            for frame in inbox:
                buffer += len(frame).to_bytes(4, "big")
                buffer += frame
            self.reader.bytes_received(memoryview(buffer))
            _spoil(buffer)
        elif self.handler is not None:
            for frame in inbox:
                if self.open:
                    buffer = bytearray(frame)
                    self.handler.frame_received(memoryview(buffer))
                    _spoil(buffer)

    def release(self) -> None:
        """The link is whole again: what waited comes now."""
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            self.expect(frame, self.network.timeline.now_us + self.network.delay_us(self.incoming))


def _spoil(buffer: bytearray) -> None:
    """It was memory that the next frame takes: whoever kept some of it must not find it again."""
    buffer[:] = b"\xee" * len(buffer)


class Arrival:
    """Frames at the end of their way; None is the end of all frames."""

    __slots__ = ("_end", "frames")

    def __init__(self, end: End, frame: bytes | None) -> None:
        self._end = end
        self.frames = [frame]

    def fire(self) -> None:
        self._end.arrive(self)


class Reset:
    """A connection breaks at one end."""

    __slots__ = ("_end", "_reason")

    def __init__(self, end: End, reason: str) -> None:
        self._end = end
        self._reason = reason

    def fire(self) -> None:
        end = self._end
        if end.incoming.cuts:
            end.network.timeline.after(SECOND_US, self)
        else:
            end.network.note_closed(end, self._reason)


class SimulatedNetwork:
    """All hosts, the links between them, and the connections on those."""

    def __init__(self, timeline: Timeline, rng: random.Random, trace: Trace) -> None:
        self.timeline = timeline
        self.trace = trace
        self.stalled: dict[End, None] = {}
        self.hosts_down: set[str] = set()
        """Machines without power, which answer nothing."""
        self.frames = 0
        self._rng = rng
        self._links: dict[tuple[str, str], Link] = {}
        self._acceptors: dict[tuple[str, int], Acceptor] = {}
        self._ends: dict[End, None] = {}
        self._numbers = 0

    # -- links

    def link(self, source: str, target: str) -> Link:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = Link(source, target)
        return found

    def delay_us(self, link: Link) -> int:
        draw = self._rng.random()
        # Most frames are quick, a few take much longer.
        spread = DELAY_US_SPREAD if draw < 0.95 else DELAY_US_SPREAD * 40
        return DELAY_US_MIN + int(draw * spread) + link.delay_us_extra

    def cut(self, source: str, target: str) -> None:
        self.link(source, target).cuts += 1

    def heal(self, source: str, target: str) -> None:
        """Take back one cut."""
        link = self.link(source, target)
        link.cuts -= 1
        if link.cuts == 0:
            for end in [end for end in self.stalled if end.incoming is link]:
                del self.stalled[end]
                end.release()

    # -- frames

    def carry(self, sender: End, frame: bytes | None) -> None:
        self.frames += 1
        self.timeline.note(FRAME_MARK + sender.number * 4, frame or b"")
        receiver = sender.peer
        arrival_us = self.timeline.now_us + self.delay_us(receiver.incoming)
        if self.trace.wants_frames:
            self.trace.frame(sender, frame, arrival_us)
        receiver.expect(frame, arrival_us)

    def nobody_home(self, end: End) -> None:
        """A frame came for an end that is gone: its machine says so, if it runs."""
        if end.host not in self.hosts_down and end.peer.open:
            self.timeline.after(self.delay_us(end.peer.incoming), Reset(end.peer, "connection reset"))

    def note_closed(self, end: End, reason: str) -> None:
        if not end.open:
            return
        end.open = False
        self.forget(end)
        self.timeline.note(CLOSE_MARK + end.number * 4)
        end.loop.enter(_tell_closed, end, reason)

    def forget(self, end: End) -> None:
        self._ends.pop(end, None)

    # -- connections

    def listen(self, host: str, port: int, acceptor: Acceptor) -> None:
        if (host, port) in self._acceptors:
            raise OSError(f"{host}:{port} is in use")
        self._acceptors[host, port] = acceptor

    def unlisten(self, host: str, port: int) -> None:
        self._acceptors.pop((host, port), None)

    async def connect(self, loop: NodeLoop, source: str, host: str, port: int, handler: StreamHandler) -> End:
        """Open a connection from a process on `source`; PeerError if that fails."""
        address = f"{host}:{port}"
        if not loop.alive:
            raise PeerError(address, "the process is dead")
        opened: asyncio.Future[End | None] = loop.create_future()
        there, back = self.link(source, host), self.link(host, source)
        self.timeline.after(self.delay_us(there), Knock(self, loop, opened, there, back, port))
        try:
            async with asyncio.timeout(CONNECT_SECONDS_MAX):
                end = await opened
        except TimeoutError as error:
            raise PeerError(address, "no answer to a connect") from error
        if end is None:
            raise PeerError(address, "connection refused", refused=True)
        if not end.open:
            raise PeerError(address, "connection reset")
        end.handler = handler
        return end

    def acceptor_at(self, host: str, port: int) -> Acceptor | None:
        return self._acceptors.get((host, port))

    def join(self, loop: NodeLoop, there: Link, back: Link, acceptor: Acceptor) -> tuple[End, End]:
        self._numbers += 1
        near = End(self, self._numbers * 2, there.source, loop, back)
        far = End(self, self._numbers * 2 + 1, there.target, acceptor.loop, there)
        near.peer, far.peer = far, near
        self._ends[near] = self._ends[far] = None
        return near, far

    # -- machines and faults

    def process_gone(self, host: str, loop: NodeLoop, *, silently: bool) -> None:
        """A process ended, or its machine did: then nobody is told."""
        for address in [address for address, acceptor in self._acceptors.items() if acceptor.loop is loop]:
            del self._acceptors[address]
        for end in [end for end in self._ends if end.loop is loop]:
            end.open = False
            self.forget(end)
            if not silently:
                self.timeline.after(self.delay_us(end.peer.incoming), Reset(end.peer, "connection reset"))

    def reset(self, first: str, second: str) -> None:
        """Break every connection between two hosts; each end learns of it at its own time."""
        for end in list(self._ends):
            if end.host == first and end.peer.host == second:
                for side in (end, end.peer):
                    self.timeline.after(self.delay_us(side.incoming), Reset(side, "connection reset"))


class Knock:
    """The first packet of a connection, on its way there and, as an answer, back."""

    __slots__ = ("_answer", "_back", "_loop", "_network", "_opened", "_port", "_there")

    def __init__(
        self,
        network: SimulatedNetwork,
        loop: NodeLoop,
        opened: asyncio.Future[End | None],
        there: Link,
        back: Link,
        port: int,
    ) -> None:
        self._network = network
        self._loop = loop
        self._opened = opened
        self._there = there
        self._back = back
        self._port = port
        self._answer: tuple[End | None] | None = None

    def fire(self) -> None:
        network = self._network
        if self._answer is not None:
            if self._back.cuts:
                network.timeline.after(SECOND_US, self)
            else:
                self._loop.enter(self._opened_as, self._answer[0])
            return
        if self._there.cuts or self._there.target in network.hosts_down:
            if not self._opened.done() and self._loop.alive:
                network.timeline.after(SECOND_US, self)
            return
        acceptor = network.acceptor_at(self._there.target, self._port)
        near: End | None = None
        if acceptor is not None and acceptor.loop.alive:
            near, far = network.join(self._loop, self._there, self._back, acceptor)
            acceptor.loop.enter(acceptor.welcome, far)
        self._answer = (near,)
        network.timeline.after(network.delay_us(self._back), self)

    def _opened_as(self, end: End | None) -> None:
        if not self._opened.done():
            self._opened.set_result(end)
        elif end is not None:
            end.close()


def _tell_closed(end: End, reason: str) -> None:
    holder = end.handler or end.reader
    if holder is not None:
        holder.stream_closed(PeerError(f"{end.peer.host}", reason))


class HostNetwork:
    """The network as one process sees it: the `Network` of `ottla.runtime.network`."""

    __slots__ = ("_host", "_loop", "_network")

    def __init__(self, network: SimulatedNetwork, host: str, loop: NodeLoop) -> None:
        self._network = network
        self._host = host
        self._loop = loop

    async def connect(self, host: str, port: int, handler: StreamHandler) -> End:
        return await self._network.connect(self._loop, self._host, host, port, handler)
