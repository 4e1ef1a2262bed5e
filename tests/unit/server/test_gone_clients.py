"""A client that is gone is noticed soon, also where the loop has nothing to say of it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

import pytest

from ottla.model.chunks import Chunks
from ottla.server import gone_clients
from ottla.server.dispatch import Peer
from ottla.server.gone_clients import PARTS, GoneClients
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import Serve, frame, numbered, until


class Clockwork:
    """A loop with one timer, which a test fires by hand."""

    def __init__(self) -> None:
        self.callback: Callable[[], None] | None = None

    def call_later(self, _seconds: float, callback: Callable[[], None]) -> Clockwork:
        self.callback = callback
        return self

    def cancel(self) -> None:
        self.callback = None

    def tick(self, count: int) -> None:
        for _ in range(count):
            if self.callback is not None:
                self.callback()


class Client:
    def __init__(self) -> None:
        self.looks = 0

    def look(self) -> None:
        self.looks += 1


def test_each_is_looked_at_once_in_so_many_pauses_and_a_part_at_a_time() -> None:
    clockwork, clients = Clockwork(), [Client() for _ in range(10 * PARTS - 1)]
    gone = GoneClients(cast(asyncio.AbstractEventLoop, clockwork), clients)
    gone.start()
    clockwork.tick(1)
    assert sum(client.looks for client in clients) == 10
    clients.append(Client())
    clockwork.tick(PARTS - 1)
    assert [client.looks for client in clients] == [1] * (10 * PARTS - 1) + [0]
    clockwork.tick(PARTS)
    assert [client.looks for client in clients] == [2] * (10 * PARTS - 1) + [1]
    gone.stop()
    clockwork.tick(PARTS)
    assert clients[-1].looks == 1


def test_nobody_is_no_reason_to_stop() -> None:
    clockwork, clients = Clockwork(), list[Client]()
    GoneClients(cast(asyncio.AbstractEventLoop, clockwork), clients).start()
    clockwork.tick(3)
    clients.append(Client())
    clockwork.tick(1)
    assert clients[0].looks == 1


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gone_clients, "PAUSE_SECONDS", 0.005)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("size", [3, 1000, 40_000])
def test_a_client_that_is_killed_in_the_middle_of_a_request_leaves_nothing(run: Run, serve: Serve, size: int) -> None:
    async def main() -> None:
        async with serve(lambda *_: []) as server:
            client = await server.connect()
            await until(lambda: bool(server.listener.connections))
            # In one turn of the loop: the bytes are there together with the end.
            assert client.socket.send(struct.pack(">i", 1_000_000)[:size] + b"x" * (size - 4)) == size
            client.reset()
            await until(lambda: not server.listener.connections)
            assert server.metrics.bytes_in == size
            assert server.metrics.connections_open == 0

    run(main)


@pytest.mark.usefixtures("impatient")
def test_all_that_a_client_has_sent_before_it_was_killed_is_served(run: Run, serve: Serve) -> None:
    served = 0

    def dispatch(_frame: memoryview, _peer: Peer) -> Chunks | None:
        nonlocal served
        served += 1
        return None

    async def main() -> None:
        async with serve(dispatch) as server:
            client = await server.connect()
            await until(lambda: bool(server.listener.connections))
            one = frame(numbered(0))
            assert client.socket.send(one * 1000) == 1000 * len(one)
            client.reset()
            await until(lambda: not server.listener.connections)
            assert served == 1000

    run(main)
