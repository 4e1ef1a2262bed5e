"""The links between brokers: each reaches another only through a proxy here, which can cut a link in one direction.

Theory of operation. A broker tells others the address of its proxy. Who connects there is found out from the system, so
each connection belongs to a pair of brokers, and its two directions to two links. A link that is cut carries nothing
and closes nothing, as when packets are lost: bytes wait, and arrive when it heals, unless somebody has given up.

What an editor must keep true: a proxy listens while its broker does. A refused connection tells a broker that the
process at the other end is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple, TypeVar

from chaos.callers import caller_of

T = TypeVar("T")

CHUNK_BYTES: Final = 256 * 1024
POLL_SECONDS: Final = 0.01
CLOSING_TURNS: Final = 10
"""A connection that is handed over, or a socket that is aborted, takes some turns of the loop."""


class Connection(NamedTuple):
    """One connection through a proxy."""

    caller: int
    called: int
    writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter]


class Links:
    """All links, served by a thread of their own. Methods are called from other threads."""

    def __init__(self, ports: Mapping[int, tuple[int, int]], pids: Callable[[], Mapping[int, int]]) -> None:
        """`ports` has, for each node, where it listens and where its proxy does."""
        self._ports = ports
        self._pids = pids
        self._loop = asyncio.new_event_loop()
        self._servers: dict[int, asyncio.Server] = {}
        self._expected: dict[int, asyncio.Task[None]] = {}
        self._open: dict[tuple[int, int], asyncio.Event] = {}
        self._connections: dict[Connection, None] = {}
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()

    # -- from other threads

    def listen(self, node_id: int) -> None:
        """The node is about to listen; its proxy will when it does."""
        self._call(self._listen(node_id))

    def refuse(self, node_id: int) -> None:
        """The node's process is gone."""
        self._call(self._refuse(node_id))

    def cut(self, sender: int, receiver: int) -> None:
        """Nothing that one sends reaches the other."""
        self._call(self._set(sender, receiver, is_open=False))

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self._call(self._heal())

    def reset(self, node_id: int) -> None:
        """All connections of a node break, as when a switch forgets them; new ones can be made."""
        self._call(self._reset(node_id))

    def close(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(10)

    # -- on the loop

    async def _listen(self, node_id: int) -> None:
        await self._refuse(node_id)
        self._expected[node_id] = self._begin(self._listen_with(node_id))

    async def _listen_with(self, node_id: int) -> None:
        own_port, proxy_port = self._ports[node_id]
        await _until_it_answers(own_port)

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A task that is cancelled before its first step never runs: its end alone is sure to come.
            self._writers[writer] = None
            self._begin(self._serve(node_id, reader, writer)).add_done_callback(lambda _: self._end(writer))

        self._servers[node_id] = await asyncio.start_server(accepted, "127.0.0.1", proxy_port, reuse_address=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _end(self, writer: asyncio.StreamWriter) -> None:
        self._writers.pop(writer, None)
        _abort(writer)

    async def _refuse(self, node_id: int) -> None:
        expected = self._expected.pop(node_id, None)
        if expected is not None:
            expected.cancel()
        server = self._servers.pop(node_id, None)
        if server is not None:
            await _stop(server)

    async def _set(self, sender: int, receiver: int, *, is_open: bool) -> None:
        event = self._event(sender, receiver)
        if is_open:
            event.set()
        else:
            event.clear()

    async def _heal(self) -> None:
        for event in self._open.values():
            event.set()

    async def _reset(self, node_id: int) -> None:
        for connection in list(self._connections):
            if node_id in (connection.caller, connection.called):
                for writer in connection.writers:
                    _abort(writer)

    async def _close(self) -> None:
        for node_id in list(self._servers):
            await self._refuse(node_id)
        for _ in range(CLOSING_TURNS):
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for writer in list(self._writers):
                self._end(writer)
            await asyncio.sleep(0)

    def _event(self, sender: int, receiver: int) -> asyncio.Event:
        event = self._open.get((sender, receiver))
        if event is None:
            event = self._open[sender, receiver] = asyncio.Event()
            event.set()
        return event

    async def _serve(self, called: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        port = int(writer.get_extra_info("peername")[1])
        caller = caller_of(port, self._ports[called][1], self._pids())
        if caller is None:
            return
        there, back = self._event(caller, called), self._event(called, caller)
        await there.wait()
        await back.wait()
        try:
            onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._ports[called][0])
        except OSError:
            # The node has ended, or ends.
            await self._refuse(called)
            return
        connection = Connection(caller, called, (writer, onward_writer))
        self._connections[connection] = None
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(reader, onward_writer, there))
                both.create_task(_carry(onward_reader, writer, back))
        except* OSError:
            pass
        finally:
            self._connections.pop(connection, None)
            _abort(onward_writer)


async def _stop(server: asyncio.Server) -> None:
    """Accept no more, and close when what was accepted is handed over: else asyncio leaves it open."""
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())
    for _ in range(CLOSING_TURNS):
        await asyncio.sleep(0)
    server.close()


async def _until_it_answers(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(POLL_SECONDS)
        else:
            writer.close()
            return


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
    """Bytes in one direction; ConnectionError at the end, so that the other direction ends too."""
    while chunk := await reader.read(CHUNK_BYTES):
        await is_open.wait()
        writer.write(chunk)
        await writer.drain()
    # The end of a connection crosses a link like anything else.
    await is_open.wait()
    raise ConnectionError("closed")


def _abort(writer: asyncio.StreamWriter) -> None:
    """With a reset: what is under way is lost."""
    connection = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
