"""The network of a real machine: streams of frames over TCP, on raw non-blocking sockets.

Theory of operation. A stream receives into one buffer that all streams of a network share, and hands frames on where
they lie. What is left of an incomplete frame is kept: a short rest as bytes, which go back to the front of the shared
buffer; a long one in memory of the stream's own, which the socket then fills directly and which doubles with what has
really arrived. So a large frame is copied a constant number of times, and a size that is announced allocates nothing.
What the socket does not take at once waits, and leaves when the socket is writable.

What an editor must keep true:
- The handler is never called from within `send`, `close` or `connect`: a failure is told in a callback of its own.
- After `close`, or after the handler was told of the end, nothing is told any more.
- A frame lies in shared memory: it is gone when the handler returns.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from struct import Struct
from typing import Final

import structlog

from ottla.runtime.network import PeerError, StreamHandler

CONNECT_TIMEOUT_MS: Final = 5000
FRAME_BYTES_MAX: Final = 128 << 20
UNSENT_BYTES_MAX: Final = 256 << 20
"""Waiting for one peer that does not read; beyond this the stream is given up."""
RECEIVE_BUFFER_BYTES: Final = 512 * 1024
LARGE_REST_BYTES: Final = 32 * 1024
"""A rest from here on is filled directly; a shorter one is cheaper to copy."""
LARGE_TURN_BYTES: Final = 1 << 20
"""Received of a large frame before others have their turn."""
LARGE_KEPT_BYTES_MAX: Final = 4 << 20
"""A stream keeps the memory of a large frame up to this size for the next one."""
SEND_TURN_BYTES: Final = 4 << 20

_SIZE: Final = Struct(">i")
_SIZE_BYTES: Final = 4

log = structlog.get_logger("ottla.network")


class TcpNetwork:
    """Opens TCP streams. Belongs to one loop."""

    __slots__ = ("_buffer", "connect_timeout_ms", "frame_bytes_max")

    def __init__(self, *, connect_timeout_ms: int = CONNECT_TIMEOUT_MS, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self.connect_timeout_ms = connect_timeout_ms
        self.frame_bytes_max = frame_bytes_max
        self._buffer: memoryview | None = None

    async def connect(self, host: str, port: int, handler: StreamHandler) -> TcpStream:
        """PeerError if nobody answers there; `refused` if every address of the host says so."""
        name = f"{host}:{port}"
        try:
            async with asyncio.timeout(self.connect_timeout_ms / 1000):
                connected = await _connect_to_any(host, port, self.connect_timeout_ms / 1000)
        except TimeoutError:
            raise PeerError(name, f"no answer within {self.connect_timeout_ms} ms") from None
        except socket.gaierror as error:
            raise PeerError(name, f"the name {host!r} is not known here ({error.strerror or error})") from None
        except ConnectionRefusedError:
            raise PeerError(name, "nothing listens there", refused=True) from None
        except OSError as error:
            raise PeerError(name, f"cannot connect: {error.strerror or error}") from None
        if self._buffer is None:
            self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        return TcpStream(connected, handler, name, self._buffer, self.frame_bytes_max)


async def _connect_to_any(host: str, port: int, timeout_seconds: float) -> socket.socket:
    """The first address of the host that takes a connection; else the error that says most.

    Each has its share of the time: one that nothing answers must not keep the others from being tried, for ever.
    """
    errors: list[OSError] = []
    addresses = await _addresses(host, port)
    for family, address in addresses:
        try:
            async with asyncio.timeout(timeout_seconds / len(addresses)):
                return await _connect(family, address)
        except OSError as error:  # TimeoutError is one.
            errors.append(error)
    # That one address refuses says nothing about another that could not be tried.
    raise next((error for error in errors if not isinstance(error, ConnectionRefusedError)), errors[0])


async def _addresses(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return [(family, (host, port))]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not found:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    return [(family, (str(address[0]), int(address[1]))) for family, _, _, _, address in found]


async def _connect(family: int, address: tuple[str, int]) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connecting, address)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if connecting.getsockname() == connecting.getpeername():
            # The system chose the very port that was dialled, and the socket met itself: nobody listens there.
            raise ConnectionRefusedError("connected to itself")
    except BaseException:
        connecting.close()
        raise
    return connecting


class TcpStream:
    """An open stream."""

    __slots__ = (
        "_buffer",
        "_fd",
        "_frame_bytes_max",
        "_handler",
        "_kept",
        "_large",
        "_large_arrived",
        "_large_wanted",
        "_loop",
        "_name",
        "_silent",
        "_socket",
        "_unsent",
        "_unsent_bytes",
        "closed",
    )

    def __init__(
        self, connected: socket.socket, handler: StreamHandler, name: str, buffer: memoryview, frame_bytes_max: int
    ) -> None:
        self.closed = False
        self._silent = False
        self._socket = connected
        self._fd = connected.fileno()
        self._handler = handler
        self._name = name
        self._buffer = buffer
        self._frame_bytes_max = frame_bytes_max
        self._kept = b""
        self._large: bytearray | None = None
        self._large_arrived = 0
        self._large_wanted = 0
        """Size included; 0 while no large frame is being received."""
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._readable)

    # Sending

    def send(self, frame: bytes | bytearray) -> None:
        """Queue a frame, size not included."""
        if self.closed:
            return
        head = _SIZE.pack(len(frame))
        sent = 0
        if not self._unsent:
            try:
                sent = self._socket.sendmsg([head, frame])
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._fail(f"the connection was lost: {error.strerror or error}")
                return
        rest = _SIZE_BYTES + len(frame) - sent
        if not rest:
            return
        if self._unsent_bytes + rest > UNSENT_BYTES_MAX:
            self._fail(f"more than {UNSENT_BYTES_MAX} bytes wait for it to read")
            return
        if not self._unsent:
            self._loop.add_writer(self._fd, self._writable)
        self._unsent_bytes += rest
        if sent < _SIZE_BYTES:
            self._unsent.append(memoryview(head)[sent:])
            sent = _SIZE_BYTES
        if frame:
            self._unsent.append(memoryview(bytes(frame))[sent - _SIZE_BYTES :])

    def _writable(self) -> None:
        budget = SEND_TURN_BYTES
        while self._unsent and budget > 0 and not self.closed:
            first = self._unsent[0]
            try:
                sent = self._socket.send(first[:budget])
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._fail(f"the connection was lost: {error.strerror or error}")
                return
            budget -= sent
            self._unsent_bytes -= sent
            if sent < len(first):
                self._unsent[0] = first[sent:]
            else:
                self._unsent.popleft()
        if not self._unsent and not self.closed:
            self._loop.remove_writer(self._fd)

    # Receiving

    def _readable(self) -> None:
        if self.closed:
            return
        try:
            arrived = self._fill_large() if self._large_wanted else self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._fail(f"the connection was lost: {error.strerror or error}")
            return
        if not arrived:
            self._fail("the connection was closed by the other side")

    def _receive(self) -> int:
        buffer, kept = self._buffer, len(self._kept)
        buffer[:kept] = self._kept
        count = self._socket.recv_into(buffer[kept:])
        if count:
            self._kept = b""
            self._take_frames(buffer[: kept + count])
        return count

    def _take_frames(self, data: memoryview) -> None:
        position, end = 0, len(data)
        while end - position >= _SIZE_BYTES:
            (size,) = _SIZE.unpack_from(data, position)
            if not 0 <= size <= self._frame_bytes_max:
                self._fail(f"a frame of {size} bytes was announced, the limit is {self._frame_bytes_max}")
                return
            frame_end = position + _SIZE_BYTES + size
            if frame_end > end:
                break
            self._hand_on(data[position + _SIZE_BYTES : frame_end])
            if self.closed:
                return
            position = frame_end
        rest = data[position:]
        if len(rest) >= LARGE_REST_BYTES:
            self._begin_large(rest)
        else:
            self._kept = bytes(rest)

    def _begin_large(self, rest: memoryview) -> None:
        self._large_wanted = _SIZE_BYTES + int(_SIZE.unpack_from(rest)[0])
        if self._large is None or len(self._large) < len(rest):
            self._large = bytearray(2 * len(rest))
        self._large[: len(rest)] = rest
        self._large_arrived = len(rest)

    def _fill_large(self) -> int:
        """Receive into the large frame; how much came, 0 at the end of the stream."""
        total = 0
        while total < LARGE_TURN_BYTES and self._large_wanted:
            large = self._room_for_large()
            room = min(len(large), self._large_wanted) - self._large_arrived
            try:
                count = self._socket.recv_into(memoryview(large)[self._large_arrived :], room)
            except (BlockingIOError, InterruptedError):
                if total:
                    break
                raise
            if not count:
                return 0
            total += count
            self._large_arrived += count
            if self._large_arrived == self._large_wanted:
                self._finish_large(large)
            elif count < room:
                break
        return total

    def _room_for_large(self) -> bytearray:
        large = self._large if self._large is not None else bytearray()
        if self._large_arrived == len(large):
            grown = bytearray(min(2 * len(large), self._large_wanted))
            grown[: len(large)] = large
            self._large = large = grown
        return large

    def _finish_large(self, large: bytearray) -> None:
        wanted, self._large_wanted, self._large_arrived = self._large_wanted, 0, 0
        if len(large) > LARGE_KEPT_BYTES_MAX:
            self._large = None
        self._hand_on(memoryview(large)[_SIZE_BYTES:wanted])

    def _hand_on(self, frame: memoryview) -> None:
        try:
            self._handler.frame_received(frame)
        except Exception as error:
            log.error("a frame of a peer could not be taken", peer=self._name, exc_info=error)
            self._fail(f"its frame could not be taken: {error}")

    # The end

    def close(self) -> None:
        self._silent = True
        self._shut()

    def _shut(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.remove_reader(self._fd)
        if self._unsent:
            self._loop.remove_writer(self._fd)
            self._unsent.clear()
        self._socket.close()
        self._kept = b""
        self._large = None
        self._large_wanted = 0

    def _fail(self, reason: str) -> None:
        if not self.closed:
            self._shut()
            self._loop.call_soon(self._tell_closed, PeerError(self._name, reason))

    def _tell_closed(self, error: PeerError) -> None:
        if not self._silent:
            self._handler.stream_closed(error)
