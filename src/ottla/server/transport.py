"""The seam under a connection: bytes to and from a socket. Plain now; a TLS transport keeps the same methods.

Each method does one step without waiting and raises BlockingIOError where it would have to wait. A TLS transport raises
the same, and sends files by reading them.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
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

    def send_file(self, file: SendableFile, position: int, length: int) -> int: ...

    def finish(self) -> None:
        """Say that nothing more will be sent."""

    def close(self) -> None: ...


class PlainTransport:
    """A TCP socket. `recv_into` and `send` are the socket's own methods: nothing lies in between on the hot path."""

    __slots__ = ("_platform", "_socket", "recv_into", "send")

    def __init__(self, connected: socket.socket, platform: Platform) -> None:
        self._socket = connected
        self._platform = platform
        self.recv_into: Callable[[memoryview, int], int] = connected.recv_into
        self.send: Callable[[bytes | bytearray | memoryview, int], int] = connected.send

    def fileno(self) -> int:
        return self._socket.fileno()

    def send_file(self, file: SendableFile, position: int, length: int) -> int:
        return self._platform.send_file(self._socket, file, position, length)

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()
