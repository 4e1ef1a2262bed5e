"""A small HTTP/1.1 server for the metrics page and for the probes of whoever runs the broker.

| path       | answer |
|------------|--------|
| `/metrics` | the page that Prometheus scrapes |
| `/livez`   | 200 as long as the loop turns |
| `/readyz`  | 200 while clients are served, 503 with the reason before and after |
| `/`        | these paths |

Theory of operation. It runs on the broker's loop and must not be felt there. A page is taken from `Exposition` piece by
piece. After `TURN_SECONDS_MAX` the clients have their turn, and full blocks leave while the rest is yet to be made, so
that a page of any size costs little memory. Nobody gets more than `REQUEST_SECONDS_MAX` to say what they want, nor more
than `ANSWER_SECONDS_MAX` to take it, and there are at most `CONNECTIONS_MAX` connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from ottla.server.exposition import CONTENT_TYPE, Exposition
from ottla.server.http_messages import (
    HEAD_BYTES_MAX,
    OK,
    UNREADABLE,
    BadRequestError,
    LongAnswer,
    Request,
    linger,
    receive,
    send_short,
)
from ottla.server.loop_watch import LoopWatch
from ottla.server.process_values import Values, process_values

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.api.entry import Api
    from ottla.server.listener import BoundListener

CONNECTIONS_MAX: Final = 64
ANSWER_SECONDS_MAX: Final = 30.0
TURN_SECONDS_MAX: Final = 0.0005
REST_SECONDS: Final = 0.001
"""Between two turns of a page, so that a busy loop gives two thirds of its time to clients while one is made."""
PROCESS_VALUES_SECONDS_MAX: Final = 1.0
"""Threads may all wait for a broken disk, which is when the page is wanted most: it does without."""
INDEX: Final = "/metrics  for Prometheus\n/livez    whether the broker is alive\n/readyz   whether it serves clients\n"

log = structlog.get_logger("ottla.http")


class MetricsServer:
    """`start`, then `port`, then `stop`; all on the broker's loop. Port 0 takes a free one.

    `listeners` are the broker's, whose connections are counted; it may be a list that is filled later. `apis` names the
    requests, by the table that is served unless told.
    """

    __slots__ = ("_address", "_connections", "_exposition", "_is_ready", "_offload", "_server", "_watch", "port")

    def __init__(
        self,
        services: Services,
        host: str,
        port: int,
        is_ready: Callable[[], bool],
        *,
        listeners: Sequence[BoundListener] = (),
        apis: Iterable[Api] | None = None,
    ) -> None:
        self.port = port
        self._address = (host, port)
        self._is_ready = is_ready
        self._offload = services.world.offload
        self._watch = LoopWatch()
        self._exposition = Exposition(
            services,
            self._watch,
            is_ready,
            apis=_served_apis() if apis is None else apis,
            listeners=listeners,
        )
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Listen, and return the port; OSError if it is taken."""
        host, port = self._address
        self._server = await asyncio.start_server(self._accept, host or None, port, limit=HEAD_BYTES_MAX)
        self.port = self._server.sockets[0].getsockname()[1]
        self._watch.start()
        return self.port

    async def stop(self) -> None:
        """Close every connection, whatever is under way; harmless if it was not started."""
        self._watch.stop()
        if self._server is not None:
            self._server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= CONNECTIONS_MAX:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            while await self._serve(reader, writer):
                pass
            await linger(reader, writer)
        except (OSError, EOFError, TimeoutError):
            # The client has gone, or has taken too long. There is nobody to tell.
            writer.transport.abort()
        except Exception as error:
            log.error("an answer over HTTP failed", exc_info=error)
            writer.transport.abort()
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; whether there may be another."""
        try:
            request = await receive(reader)
        except BadRequestError as error:
            await send_short(UNREADABLE, writer, str(error), f"{error}\n")
            return False
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await self._answer(request, writer)
        return request.keeps_alive

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method not in ("GET", "HEAD"):
            allowed = "GET, HEAD"
            await send_short(request, writer, "405 Method Not Allowed", f"only {allowed}\n", f"Allow: {allowed}")
            return
        match request.path:
            case "/metrics":
                await self._send_page(request, writer)
            case "/readyz" if not self._is_ready():
                reason = "not ready: the broker is starting or stopping\n"
                await send_short(request, writer, "503 Service Unavailable", reason)
            case "/livez" | "/readyz":
                await send_short(request, writer, OK, "ok\n")
            case "/":
                await send_short(request, writer, OK, INDEX)
            case _:
                await send_short(request, writer, "404 Not Found", INDEX)

    async def _send_page(self, request: Request, writer: asyncio.StreamWriter) -> None:
        process = await self._process_values()
        page = LongAnswer(request, writer, CONTENT_TYPE)
        if request.method == "HEAD":
            await writer.drain()
            return
        now = time.monotonic  # uvloop's own clock counts whole milliseconds.
        turn_ends = now() + TURN_SECONDS_MAX
        for piece in self._exposition.render(process):
            if page.add(piece):
                await writer.drain()
            if now() >= turn_ends:
                await asyncio.sleep(REST_SECONDS)
                turn_ends = now() + TURN_SECONDS_MAX
        page.finish()
        await writer.drain()

    async def _process_values(self) -> Values:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROCESS_VALUES_SECONDS_MAX):
                return await self._offload.run(process_values)
        return []


def _served_apis() -> Iterable[Api]:
    # The table holds every handler: loaded already where a broker runs, too much where only this server does.
    from ottla.api.table import APIS

    return APIS
