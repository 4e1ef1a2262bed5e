"""The seam under a connection: bytes to and from a socket. Plain now; a TLS transport keeps the same methods.

Each method does one step without waiting and raises BlockingIOError where it would have to wait. A TLS transport raises
the same, and sends files by reading them.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.model.chunks import SendableFile
from ottla.server.platform import Platform


class Transport(Protocol):
    """A non-blocking stream."""

    @property
    def recv_into(self) -> Callable[[memoryview, int], int]:
        """(buffer, bytes at most) -> bytes received; 0 at the end of the stream."""

    @property
    def send(self) -> Callable[[bytes | bytearray | memoryview, int], int]:
        """(data, flags) -> bytes sent; the flags are 0 or the platform's `send_more`."""

    def fileno(self) -> int: ...

    @property
    def send_file(self) -> Callable[[SendableFile, int, int], int]:
        """(file, position, length) -> bytes sent; 0 if the file ends before them."""

    def has_failed(self) -> bool:
        """Whether there is an error that nobody was told of; it is told of once."""

    def finish(self) -> None:
        """Say that nothing more will be sent."""

    def close(self) -> None: ...


class PlainTransport:
    """A TCP socket. Its hot methods are the socket's own, with nothing in between."""

    __slots__ = ("_socket", "recv_into", "send", "send_file")

    def __init__(self, connected: socket.socket, platform: Platform) -> None:
        self._socket = connected
        self.recv_into: Callable[[memoryview, int], int] = connected.recv_into
        self.send: Callable[[bytes | bytearray | memoryview, int], int] = connected.send
        self.send_file: Callable[[SendableFile, int, int], int] = partial(platform.send_file, connected)

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_failed(self) -> bool:
        return self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()
