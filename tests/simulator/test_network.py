"""Connections: order, delay, loss of a suffix, cut links, machines that are gone."""

from __future__ import annotations

from collections.abc import Callable

from ottla.runtime.network import PeerError
from simulator.network import End, HostNetwork
from simulator.node_loop import NodeLoop
from simulator.room import Room
from simulator.timeline import SECOND_US


class Inbox:
    """Keeps what comes, and answers if told to."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed: list[str] = []

    def frame_received(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))

    def stream_closed(self, error: PeerError) -> None:
        self.closed.append(error.reason)


class Door:
    """Accepts everybody into one inbox."""

    def __init__(self, room: Room, host: str) -> None:
        self.loop = room.process(host)
        self.inbox = Inbox()
        self.ends: list[End] = []
        room.network.listen(host, 1, self)

    def welcome(self, end: End) -> None:
        end.handler = self.inbox
        self.ends.append(end)


class Caller:
    """Connects from a host, and keeps the outcome."""

    def __init__(self, room: Room, host: str = "b") -> None:
        self.room = room
        self.loop: NodeLoop = room.process(host)
        self.network: HostNetwork = room.network_of(host, self.loop)
        self.inbox = Inbox()
        self.end: End | None = None
        self.error: PeerError | None = None
        self.loop.start(self._connect())

    async def _connect(self) -> None:
        try:
            self.end = await self.network.connect("a", 1, self.inbox)
        except PeerError as error:
            self.error = error

    def send(self, *frames: bytes) -> None:
        assert self.end is not None
        for frame in frames:
            self.end.send(frame)


def connected() -> tuple[Room, Door, Caller, Callable[[float], None]]:
    room = Room(1)
    door = Door(room, "a")
    caller = Caller(room)

    def run(seconds: float) -> None:
        room.timeline.run(room.timeline.now_us + int(seconds * SECOND_US))

    run(1)
    return room, door, caller, run


def test_frames_arrive_in_order() -> None:
    _, door, caller, run = connected()
    frames = [b"%d" % number for number in range(50)]
    caller.send(*frames)
    run(1)
    assert door.inbox.frames == frames


class Receives:
    """Keeps what comes, one receive at a time."""

    def __init__(self) -> None:
        self.receives: list[list[bytes]] = []

    def bytes_received(self, data: memoryview) -> None:
        frames = []
        while data:
            size = int.from_bytes(data[:4], "big")
            frames.append(bytes(data[4 : 4 + size]))
            data = data[4 + size :]
        self.receives.append(frames)

    def stream_closed(self, error: PeerError) -> None: ...


def test_frames_that_would_overtake_come_in_one_receive() -> None:
    _, door, caller, run = connected()
    reader = door.ends[0].reader = Receives()
    door.ends[0].handler = None
    frames = [b"%d" % number for number in range(50)]
    caller.send(*frames)
    run(1)
    assert [frame for receive in reader.receives for frame in receive] == frames
    assert 1 < len(reader.receives) < len(frames)


def test_a_process_that_was_paused_receives_all_at_once() -> None:
    _, door, caller, run = connected()
    reader = door.ends[0].reader = Receives()
    door.ends[0].handler = None
    door.loop.pause()
    for frame in (b"1", b"2", b"3"):
        caller.send(frame)
        run(1)
    assert reader.receives == []
    door.loop.resume()
    run(1)
    assert reader.receives == [[b"1", b"2", b"3"]]


def test_nobody_listens_is_a_refusal_and_no_power_is_silence() -> None:
    room = Room(1)
    refused = Caller(room)
    room.network.hosts_down.add("a")
    silent = Caller(room, "c")
    room.timeline.run(30 * SECOND_US)
    assert refused.error is not None
    assert silent.error is not None
    assert not silent.error.refused


def test_a_cut_link_holds_frames_back_until_it_heals() -> None:
    room, door, caller, run = connected()
    room.network.cut("b", "a")
    caller.send(b"1", b"2")
    run(5)
    assert door.inbox.frames == []
    door.ends[0].send(b"the other way is open")
    run(1)
    assert caller.inbox.frames == [b"the other way is open"]
    room.network.heal("b", "a")
    caller.send(b"3")
    run(1)
    assert door.inbox.frames == [b"1", b"2", b"3"]


def test_a_reset_loses_a_suffix_and_tells_both_ends_once() -> None:
    room, door, caller, run = connected()
    frames = [b"%d" % number for number in range(100)]
    caller.send(*frames)
    room.network.reset("b", "a")
    run(1)
    assert door.inbox.frames == frames[: len(door.inbox.frames)]
    assert len(door.inbox.closed) == len(caller.inbox.closed) == 1
    caller.send(b"late")
    run(1)
    assert b"late" not in door.inbox.frames


def test_a_killed_process_resets_and_a_machine_without_power_says_nothing_until_it_is_back() -> None:
    room, door, caller, run = connected()
    door.loop.kill()
    room.network.hosts_down.add("a")
    room.network.process_gone("a", door.loop, silently=True)
    caller.send(b"hello")
    run(5)
    assert caller.inbox.closed == []
    room.network.hosts_down.discard("a")
    caller.send(b"hello?")
    run(1)
    assert caller.inbox.closed == ["connection reset"]
