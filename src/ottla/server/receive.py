"""Memory that requests are received into.

Theory of operation. One buffer belongs to the loop. A connection receives into it, its frames are handled in place,
and only what is left of an incomplete frame is kept: a short rest as exact bytes, which go back to the front of the
shared buffer at the next turn; a long one as a `LargeFrame`, which the socket then fills directly.

A `LargeFrame` grows with what has really arrived. A client that announces 100 MB and sends nothing costs nothing; one
that sends 1 MB costs 2 MB at most. Buffers of finished large frames are kept for the next ones, since the page faults
of fresh memory cost more than the copy does.

A very large frame is mostly followed by another. So after one only so much is received that it shows what comes next
(`FIRST_LOOK_BYTES`): if that is very large, too, and a buffer lies idle, hardly anything of it is copied.

What an editor must keep true:
- Bytes in the shared buffer are valid until the loop runs the next callback, never longer.
- A length prefix never decides how much is allocated. It may decide which idle buffer is lent.
"""

from __future__ import annotations

from typing import Final

from ottla.model.limits import RECEIVE_BUFFER_BYTES
from ottla.server.transport import Transport

LENGTH_BYTES: Final = 4
RECEIVE_TURN_BYTES: Final = 512 * 1024
"""Asked of a socket at a time, so that no client holds the loop and none leaves much behind when it must wait."""
LARGE_REST_BYTES: Final = 32 * 1024
"""A rest from here on is filled directly; a shorter one is cheaper to copy."""
VERY_LARGE_BYTES: Final = 256 * 1024
"""What copying a part of a shorter frame costs is less than another receive does."""
FIRST_LOOK_BYTES: Final = 4 * 1024
"""Received after a very large frame, to see whether another one follows."""
POOLED_BITS_MIN: Final = LARGE_REST_BYTES.bit_length()
POOLED_BITS_MAX: Final = 22
POOLED_BYTES_PER_SIZE_MAX: Final = 4 << 20


class ReceiveBuffers:
    """The receive buffer of a loop, and idle buffers for large frames: powers of two from 64 kB to 4 MB."""

    __slots__ = ("_idle", "view")

    def __init__(self) -> None:
        self.view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._idle: list[list[memoryview]] = [[] for _ in range(POOLED_BITS_MAX + 1)]

    def take(self, arrived_bytes: int, wanted_bytes: int) -> memoryview:
        """An idle buffer that fits all that is wanted; else a new one, less than twice what has arrived."""
        for bits in range(max(wanted_bytes.bit_length(), POOLED_BITS_MIN), POOLED_BITS_MAX + 1):
            if self._idle[bits]:
                return self._idle[bits].pop()
        return memoryview(bytearray(1 << arrived_bytes.bit_length()))

    def give_back(self, buffer: memoryview) -> None:
        bits = len(buffer).bit_length() - 1
        if bits <= POOLED_BITS_MAX:
            idle = self._idle[bits]
            if len(idle) << bits < POOLED_BYTES_PER_SIZE_MAX:
                idle.append(buffer)

    def has_idle(self, wanted_bytes: int) -> bool:
        """Whether an idle buffer fits a very large frame, if one of so many bytes is."""
        return wanted_bytes >= VERY_LARGE_BYTES and any(self._idle[wanted_bytes.bit_length() :])

    def idle_bytes(self) -> int:
        return sum(len(buffer) for idle in self._idle for buffer in idle)


class LargeFrame:
    """A frame, length prefix included, that is received into a buffer of its own."""

    __slots__ = ("_buffer", "_buffers", "_wanted_bytes", "arrived_bytes")

    def __init__(self, buffers: ReceiveBuffers, head: memoryview, wanted_bytes: int) -> None:
        self._buffers = buffers
        self._wanted_bytes = wanted_bytes
        self._buffer = buffers.take(len(head), wanted_bytes)
        self._buffer[: len(head)] = head
        self.arrived_bytes = len(head)

    def receive(self, transport: Transport) -> tuple[int, bool]:
        """One step: how much came, and whether the socket had no more than that."""
        if self.arrived_bytes == len(self._buffer):
            self._grow()
        start = self.arrived_bytes
        room = min(len(self._buffer), self._wanted_bytes) - start
        count = transport.recv_into(self._buffer[start : start + room], room)
        self.arrived_bytes = start + count
        return count, count < room

    def is_complete(self) -> bool:
        return self.arrived_bytes == self._wanted_bytes

    def is_very_large(self) -> bool:
        return self._wanted_bytes >= VERY_LARGE_BYTES

    def frame(self) -> memoryview:
        return self._buffer[LENGTH_BYTES : self._wanted_bytes]

    def release(self) -> None:
        """The frame was handled, or will never be: its memory is for the next one."""
        self._buffers.give_back(self._buffer)

    def _grow(self) -> None:
        grown = self._buffers.take(self.arrived_bytes, self._wanted_bytes)
        grown[: self.arrived_bytes] = self._buffer
        self._buffers.give_back(self._buffer)
        self._buffer = grown
