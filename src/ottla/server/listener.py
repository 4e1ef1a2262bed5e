"""Accepts connections on one address, counts them, and lets them finish when the broker stops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Sized
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from ottla.server.connection import Connection, Dispatch
from ottla.server.gone_clients import GoneClients
from ottla.server.share import LoopShare
from ottla.server.transport import PlainTransport

if TYPE_CHECKING:
    from ottla.model.configs.listeners import Endpoint
    from ottla.model.configs.resolve import BrokerConfig

ACCEPTS_PER_TURN_MAX: Final = 64
BACKLOG: Final = 1024
NO_FILES_PAUSE_SECONDS: Final = 1.0
OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
NO_SUCH_ADDRESS: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

log = structlog.get_logger("ottla.server")


class BoundListener(Protocol):
    """What a broker asks of a listener. `Listener` has sockets; a simulator hands in one without."""

    @property
    def name(self) -> str: ...

    @property
    def port(self) -> int:
        """Known after `bind`."""

    @property
    def connections(self) -> Sized: ...

    async def bind(self) -> None:
        """Take the address, and accept nothing yet. OSError if it is taken."""

    def accept(self) -> None:
        """Serve whoever connects from now on."""

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Accept no more, give connections that long to send what they owe, then close them all."""


class Listener:
    """One listener of a broker: `start`, then `port` and `connections`, then `close`.

    `name` is the listener's name in the broker's config. Port 0 takes a free one. `send_buffer_bytes` and
    `receive_buffer_bytes` are the sockets' own buffers; -1 leaves them to the system, which tunes them by itself.
    `backlog` is how many connections may wait to be accepted.
    """

    __slots__ = (
        "_accepting",
        "_backlog",
        "_buffer_bytes",
        "_dispatch",
        "_empty",
        "_gone",
        "_share",
        "_sockets",
        "_timer",
        "connections",
        "host",
        "name",
        "port",
    )

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        dispatch: Dispatch,
        share: LoopShare,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        backlog: int = BACKLOG,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port
        self.connections: set[Connection] = set()
        self._dispatch = dispatch
        self._share = share
        self._gone = GoneClients(share.loop, self.connections)
        self._buffer_bytes = {socket.SO_SNDBUF: send_buffer_bytes, socket.SO_RCVBUF: receive_buffer_bytes}
        self._backlog = backlog
        self._sockets: list[socket.socket] = []
        self._accepting = False
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()

    @classmethod
    def of(cls, endpoint: Endpoint, config: BrokerConfig, dispatch: Dispatch, share: LoopShare) -> Listener:
        """The listener that a broker's config describes."""
        return cls(
            endpoint.listener,
            endpoint.host,
            endpoint.port,
            dispatch,
            share,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
            backlog=max(config.socket_listen_backlog_size, BACKLOG),
        )

    async def start(self) -> None:
        """`bind` and `accept`."""
        await self.bind()
        self.accept()

    async def bind(self) -> None:
        """Bind every address that the host name has; `port` is known from then on. OSError if one is taken.

        Clients that connect before `accept` wait in the system's backlog.
        """
        loop = self._share.loop
        host = self.host or None
        found = await loop.getaddrinfo(host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((row[0], row[4]) for row in found):
            try:
                self._sockets.append(self._bind(family, (address[0], self.port, *address[2:])))
            except OSError as error:
                # A name may have an address of a family that this machine has switched off.
                if error.errno not in NO_SUCH_ADDRESS or (address == found[-1][4] and not self._sockets):
                    self._close_sockets()
                    raise

    def accept(self) -> None:
        """Serve whoever connects from now on."""
        self._accept_again()
        self._gone.start()

    async def close(self, grace_seconds: float = 0.0) -> None:
        """Accept no more, give connections that long to send what they owe, then close them all."""
        self._stop_accepting()
        self._close_sockets()
        self._gone.stop()
        for connection in list(self.connections):
            connection.drain()
        if self.connections and grace_seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self._empty.wait()
        for connection in list(self.connections):
            connection.close()
        await asyncio.sleep(0)

    def _bind(self, family: int, address: tuple[str | int, ...]) -> socket.socket:
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setblocking(False)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for option, size in self._buffer_bytes.items():
                if size >= 0:
                    bound.setsockopt(socket.SOL_SOCKET, option, size)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind(address)
            bound.listen(self._backlog)
        except OSError:
            bound.close()
            raise
        self.port = self.port or bound.getsockname()[1]
        return bound

    def _accept_again(self) -> None:
        self._timer = None
        if not self._accepting and self._sockets:
            self._accepting = True
            for bound in self._sockets:
                self._share.loop.add_reader(bound.fileno(), self._accept, bound)

    def _stop_accepting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._accepting:
            self._accepting = False
            for bound in self._sockets:
                self._share.loop.remove_reader(bound.fileno())

    def _close_sockets(self) -> None:
        for bound in self._sockets:
            # A process that was forked meanwhile has a copy, with which nobody would be refused.
            with contextlib.suppress(OSError):
                bound.shutdown(socket.SHUT_RDWR)
            bound.close()
        self._sockets.clear()

    def _accept(self, bound: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if not self._share.has_room():
                self._wait_for_room()
                return
            try:
                accepted, address = bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._accept_failed(error)
                return
            self._welcome(accepted, address[0].removeprefix("::ffff:"))

    def _wait_for_room(self) -> None:
        """As many connections as may be: new ones wait in the system's queue until one goes."""
        self._stop_accepting()
        reason = f"{self._share.open_count} connections are open, which is as many as may be: further ones wait"
        self._share.refusals.note("any", self.name, reason, "connections wait")
        self._share.wait_for_room(self._accept_again)

    def _accept_failed(self, error: OSError) -> None:
        if error.errno in OUT_OF_FILES:
            log.error("cannot accept connections", listener=self.name, reason=str(error))
            self._stop_accepting()
            self._timer = self._share.loop.call_later(NO_FILES_PAUSE_SECONDS, self._accept_again)
        else:
            log.warning("connection lost while it was accepted", listener=self.name, reason=str(error))

    def _welcome(self, accepted: socket.socket, host: str) -> None:
        share = self._share
        if not share.admit(host):
            accepted.close()
            share.metrics.connections_refused += 1
            share.refusals.note(host, self.name, f"this host holds {share.limits.per_host(host)} connections already")
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._empty.clear()
        transport = PlainTransport(accepted, share.platform)
        connection = Connection(
            transport, share, self._dispatch, host=host, listener=self.name, on_close=self._connection_closed
        )
        self.connections.add(connection)

    def _connection_closed(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._share.dismiss(connection.host)
        if not self.connections:
            self._empty.set()
