"""What a client is still to be sent: bytes and slices of files, in order.

Theory of operation. `flush` sends until everything is gone, the socket is full, its share of the loop is used up, or
the disk would have to be waited for; it says which. Short pieces are gathered in one staging buffer of the loop and
leave in one call: up to some 200 kB that costs less than a system call for each of them, and those that ask whether a
slice is in memory. Long slices go by sendfile. Before a slice is touched the platform is asked whether it is in memory.
If not, `cold` says which range a thread should read first.

What an editor must keep true:
- The queue moves on only by what the socket took. Gathering may be repeated at will.
- After `warmed`, that range is sent without asking again: a file system that never says yes must not stop a client.
- No chunk in the queue is empty, so the first one is where the next byte comes from.
- `FileSlice` is a tuple: its `len` is not its length.
"""

from __future__ import annotations

from enum import Enum, auto
from struct import Struct
from typing import Final, cast

from ottla.model.chunks import Chunk, Chunks, FileSlice
from ottla.model.errors import OttlaError
from ottla.server.platform import WOULD_WAIT, Platform
from ottla.server.transport import Transport

STAGING_BYTES: Final = 256 * 1024
GATHERED_BYTES_MAX: Final = 192 * 1024
"""A piece longer than this goes on its own."""
TURN_BYTES_MAX: Final = 4 << 20
"""Sent to one client before the others have their turn."""
WARM_BYTES_MAX: Final = 4 << 20
"""Read ahead by a thread at a time."""
SENT_CHUNKS_KEPT_MAX: Final = 64
JOINED_BYTES_MAX: Final = 16 * 1024
"""A first piece up to here is copied to join it to its size; a longer one follows it."""

_SIZE: Final = Struct(">i")
_size_bytes: Final = _SIZE.pack
_size_into: Final = _SIZE.pack_into


class FileEndedError(OttlaError):
    """A slice was promised that its file does not have: the answer cannot be finished."""


class Flush(Enum):
    """Why `flush` came back."""

    DONE = auto()
    FULL = auto()
    """The socket takes no more, or others have their turn: go on when it is writable."""
    COLD = auto()
    """The next range is on disk."""


class Output:
    """The answers of one connection that are on their way."""

    __slots__ = (
        "_chunks",
        "_has_slices",
        "_head",
        "_offset",
        "_platform",
        "_staging",
        "_transport",
        "_warm_bytes",
        "pending",
    )

    def __init__(self, transport: Transport, platform: Platform, staging: memoryview) -> None:
        self._transport = transport
        self._platform = platform
        self._staging = staging
        self._chunks: list[Chunk] = []
        self._has_slices = False
        self._head = 0
        self._offset = 0
        self._warm_bytes = 0
        """Bytes from the present place on that a thread has read."""
        self.pending = 0

    def push_answer(self, chunks: Chunks) -> None:
        """Queue an answer behind its size."""
        size = _size_bytes(chunks_bytes(chunks))
        first = chunks[0]
        if type(first) is bytes and len(first) <= JOINED_BYTES_MAX:
            self.push_bytes(size + first)
            if len(chunks) > 1:
                self._push(chunks[1:])
        else:
            self.push_bytes(size)
            self._push(chunks)

    def push_bytes(self, data: bytes) -> None:
        self._chunks.append(data)
        self.pending += len(data)

    def send_short(self, chunks: Chunks) -> int:
        """Send a short answer in one call if nothing waits and all of it is in memory; else queue what is left of it.

        Returns how many bytes went out. Raises OSError if the client is gone.
        """
        staging, filled = self._staging, 4
        for chunk in chunks:
            if isinstance(chunk, FileSlice):
                file, position, length, shown = chunk
                end = filled + length
                if end > GATHERED_BYTES_MAX:
                    break
                into = staging[filled:end]
                if self._platform.read_now(file, into, position) != length:
                    break
                if shown is not None:
                    shown(chunk, into)
            else:
                end = filled + len(chunk)
                if end > GATHERED_BYTES_MAX:
                    break
                staging[filled:end] = chunk
            filled = end
        else:
            _size_into(staging, 0, filled - 4)
            sent = self._send_or_none(staging[:filled])
            if sent < filled:
                self.push_answer(chunks)
                self._advance(sent)
            return sent
        self.push_answer(chunks)
        return 0

    def cold(self) -> FileSlice:
        """The range to be read by a thread, after `flush` said COLD."""
        chunk = self._chunks[self._head]
        if not isinstance(chunk, FileSlice):
            raise OttlaError("only a slice of a file can be cold")
        length = min(chunk.length - self._offset, WARM_BYTES_MAX)
        return FileSlice(chunk.file, chunk.position + self._offset, length)

    def warmed(self, length: int) -> None:
        self._warm_bytes = length

    def clear(self) -> None:
        self._chunks = []
        self._has_slices = False
        self._head = self._offset = self._warm_bytes = self.pending = 0

    def flush(self) -> tuple[Flush, int]:
        """Send what can be sent now; returns why it ended and how many bytes went out.

        Raises OSError if the client is gone and FileEndedError if a file is.
        """
        total = 0
        while self.pending:
            if total >= TURN_BYTES_MAX:
                return Flush.FULL, total
            try:
                asked, sent = self._send_some(TURN_BYTES_MAX - total)
            except (BlockingIOError, InterruptedError):
                return Flush.FULL, total
            if sent == WOULD_WAIT:
                return Flush.COLD, total
            total += sent
            if sent == self.pending:
                self.clear()
            else:
                self._advance(sent)
                if sent < asked:
                    return Flush.FULL, total
        return Flush.DONE, total

    def _send_some(self, budget: int) -> tuple[int, int]:
        """One system call's worth: (asked, sent)."""
        chunk = self._chunks[self._head]
        if isinstance(chunk, FileSlice):
            if chunk.length - self._offset > GATHERED_BYTES_MAX:
                return self._send_slice(chunk, budget)
        elif len(chunk) - self._offset > GATHERED_BYTES_MAX:
            part = memoryview(chunk)[self._offset : self._offset + budget]
            more = self._platform.send_more if len(part) < self.pending else 0
            return len(part), self._transport.send(part, more)
        return self._send_gathered()

    def _send_slice(self, chunk: FileSlice, budget: int) -> tuple[int, int]:
        position = chunk.position + self._offset
        length = min(chunk.length - self._offset, budget)
        if self._warm_bytes:
            length = min(length, self._warm_bytes)
        elif not self._platform.is_resident(chunk.file, position, length):
            return length, WOULD_WAIT
        sent = self._transport.send_file(chunk.file, position, length)
        if sent == 0:
            raise FileEndedError(f"a file ends before {position + length}")
        return length, sent

    def _send_gathered(self) -> tuple[int, int]:
        if not self._has_slices and not self._offset and self.pending <= STAGING_BYTES:
            data = b"".join(cast("list[bytes]", self._chunks[self._head :]))
            return len(data), self._transport.send(data, 0)
        filled = self._gather()
        if filled == WOULD_WAIT:
            return 0, WOULD_WAIT
        more = self._platform.send_more if filled < self.pending else 0
        return filled, self._transport.send(self._staging[:filled], more)

    def _gather(self) -> int:
        """Copy short pieces from the front of the queue into the staging buffer."""
        staging, chunks = self._staging, self._chunks
        filled, offset = 0, self._offset
        for index in range(self._head, len(chunks)):
            chunk = chunks[index]
            length = (chunk.length if isinstance(chunk, FileSlice) else len(chunk)) - offset
            if length > GATHERED_BYTES_MAX or filled + length > STAGING_BYTES:
                break
            into = staging[filled : filled + length]
            if isinstance(chunk, FileSlice):
                if not self._read(chunk, into, offset, is_first=not filled):
                    return filled or WOULD_WAIT
            else:
                into[:] = chunk[offset:] if offset else chunk
            filled += length
            offset = 0
        return filled

    def _push(self, chunks: Chunks) -> None:
        for chunk in chunks:
            if isinstance(chunk, FileSlice):
                length = chunk.length
                self._has_slices = True
            else:
                length = len(chunk)
            if length:
                self._chunks.append(chunk)
                self.pending += length

    def _send_or_none(self, data: memoryview) -> int:
        try:
            return self._transport.send(data, 0)
        except (BlockingIOError, InterruptedError):
            return 0

    def _read(self, chunk: FileSlice, into: memoryview, offset: int, *, is_first: bool) -> bool:
        """Copy the rest of a short slice; False if it is not in memory."""
        position = chunk.position + offset
        if is_first and self._warm_bytes:
            data = chunk.file.pread(len(into), position)
            if len(data) < len(into):
                raise FileEndedError(f"a file ends before {position + len(into)}")
            into[:] = data
            return True
        return self._platform.read_now(chunk.file, into, position) == len(into)

    def _advance(self, sent: int) -> None:
        self.pending -= sent
        self._warm_bytes = max(0, self._warm_bytes - sent)
        chunks = self._chunks
        head, reach = self._head, self._offset + sent
        while head < len(chunks):
            chunk = chunks[head]
            length = chunk.length if isinstance(chunk, FileSlice) else len(chunk)
            if reach < length:
                break
            reach -= length
            head += 1
        if head > SENT_CHUNKS_KEPT_MAX:
            del chunks[:head]
            head = 0
        self._head, self._offset = head, reach


def chunks_bytes(chunks: Chunks) -> int:
    """The size of an answer."""
    size = 0
    for chunk in chunks:
        size += chunk.length if isinstance(chunk, FileSlice) else len(chunk)
    return size
