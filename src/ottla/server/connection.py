"""One client: frames in, answers out in the order of the requests.

Theory of operation. The loop calls `_readable`. Bytes go into the loop's receive buffer, complete frames are
dispatched where they lie, and what is left is kept (see `receive`). An answer that is ready while nothing older is
owed is sent at once; else it waits in `_owed` behind the older ones. What the socket does not take waits in
`_output`. While further frames lie in the buffer, answers are only queued (`_corked`), and leave together when the
last one is handled.

A turn is short: one receive, a bounded number of frames, a bounded number of bytes out. A client that is owed too
much is no longer read until it has taken half of that; frames of its that were received already wait in `_backlog`.

Two ways to the end. `_fail` and `refuse` may be called from anywhere, also from inside somebody else's request whose
answer to this client failed; so they only mark the connection, and `close` runs as a callback of its own. `drain`
lets a connection finish what it owes.

What an editor must keep true:
- Nothing but the loop calls `_readable`: the receive buffer may be in use by another connection.
- Every answer passes `_owed` if anything is in it.
- After `_alive` is False nothing is dispatched and nothing is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Final

import structlog

from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks, FileSlice
from ottla.model.errors import OttlaError
from ottla.model.limits import IN_FLIGHT_REQUESTS_MAX, OUTPUT_BYTES_PAUSE, REQUEST_HEADER_BYTES_MIN
from ottla.server.dispatch import Peer
from ottla.server.output import JOINED_BYTES_MAX, FileEndedError, Flush, Output
from ottla.server.platform import read_through
from ottla.server.receive import LARGE_REST_BYTES, LENGTH_BYTES, RECEIVE_TURN_BYTES, LargeFrame
from ottla.server.refusals import recognise
from ottla.server.share import LoopShare
from ottla.server.transport import Transport

SHORT_REQUEST_BYTES_MAX: Final = 1024
"""Who sends this little at a time waits for each answer, and the next request is close."""
FRAMES_PER_TURN_MAX: Final = 32
"""Requests of one client before the others have their turn."""
LARGE_TURN_BYTES_MAX: Final = 1 << 20
"""Received of a large frame before the others have their turn."""
DISCARDS_MAX: Final = 16
"""Receives of input that nobody will look at, before a connection is closed regardless."""

_LENGTH: Final = Struct(">i")
_length_at: Final = _LENGTH.unpack_from
_length_bytes: Final = _LENGTH.pack

Dispatch = Callable[[Peer, memoryview], Chunks | Deferred | None]

log = structlog.get_logger("ottla.server")


class Connection:
    """A client's connection, from its acceptance to its close."""

    __slots__ = (
        "_alive",
        "_answered_shortly",
        "_backlog",
        "_corked",
        "_dispatch",
        "_draining",
        "_fd",
        "_kept",
        "_large",
        "_on_close",
        "_output",
        "_owed",
        "_paused",
        "_reading",
        "_receive",
        "_send",
        "_share",
        "_transport",
        "_warming",
        "_writing",
        "active_tick",
        "closed",
        "host",
        "idle_bucket",
        "listener",
        "principal",
    )

    def __init__(
        self,
        transport: Transport,
        share: LoopShare,
        dispatch: Dispatch,
        *,
        host: str,
        listener: str,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.host = host
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        self.closed = False
        self.active_tick = 0
        self.idle_bucket = 0
        self._transport = transport
        self._fd = transport.fileno()
        self._receive = transport.recv_into
        self._send = transport.send
        self._share = share
        self._dispatch = dispatch
        self._on_close = on_close
        self._alive = True
        self._draining = False
        self._kept = b""
        self._backlog: memoryview | None = None
        """Frames of an earlier turn; a callback that takes them is scheduled unless reading is paused."""
        self._large: LargeFrame | None = None
        self._owed: deque[Deferred | Chunks] | None = None
        self._corked = False
        self._paused = False
        self._reading = True
        self._answered_shortly = False
        """Whether the last answer was one that a client waits for before it asks again."""
        self._writing = False
        self._warming = False
        self._output = Output(transport, share.platform, share.staging)
        share.idle.add(self)
        share.loop.add_reader(self._fd, self._readable)

    # Reading

    def _readable(self) -> None:
        if not self._alive or self._paused or self._backlog is not None:
            if self._paused:
                self._stop_reading()
            return
        share = self._share
        self.active_tick = share.idle.tick
        try:
            if self._large is not None:
                self._receive_large(self._large)
                return
            kept = len(self._kept)
            view = share.buffers.view
            try:
                if kept:
                    view[:kept] = self._kept
                    count = self._receive(view[kept:], RECEIVE_TURN_BYTES)
                else:
                    count = self._receive(view, RECEIVE_TURN_BYTES)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count = 0
            if count:
                share.metrics.bytes_in += count
                self._take_frames(view, kept + count)
                if count <= SHORT_REQUEST_BYTES_MAX and self._answered_shortly:
                    self._answered_shortly = False
                    if not share.attention.touched:
                        share.attention.touch()
            else:
                self._fail()
        except Exception as error:
            self._broken(error)

    def _take_backlog(self) -> None:
        """Go on with frames that were received in an earlier turn."""
        backlog = self._backlog
        if backlog is None or not self._alive or self._paused:
            return
        self._backlog = None
        try:
            self._take_frames(backlog, len(backlog))
        except Exception as error:
            self._broken(error)

    def _take_frames(self, view: memoryview, end: int) -> None:
        """Dispatch the frames that lie in the first `end` bytes, and keep the rest."""
        start = stop = 0
        frames_left = FRAMES_PER_TURN_MAX
        bytes_max = self._share.request_bytes_max
        while end - start >= LENGTH_BYTES:
            (length,) = _length_at(view, start)
            if not REQUEST_HEADER_BYTES_MIN <= length <= bytes_max:
                self._refuse_length(length, bytes(view[start : start + LENGTH_BYTES]))
                return
            stop = start + LENGTH_BYTES + length
            if stop > end:
                break
            if not frames_left or self._paused:
                self._postpone(view[start:end])
                start = end
                break
            frames_left -= 1
            self._corked = end - stop > LENGTH_BYTES
            answer = self._dispatch(self, view[start + LENGTH_BYTES : stop])
            if answer:
                self._take_answer(answer)
            start = stop
            if not self._alive:
                return
        if start < end or self._kept:
            self._keep(view[start:end], stop - start)
        if self._corked or self._output.pending:
            self._uncork()

    def _postpone(self, frames: memoryview) -> None:
        """Go on with these in another turn, out of the way of the next client's input."""
        shared = self._share.buffers.view
        self._backlog = memoryview(bytearray(frames)) if frames.obj is shared.obj else frames
        if not self._paused:
            self._share.loop.call_soon(self._take_backlog)

    def _keep(self, rest: memoryview, wanted_bytes: int) -> None:
        if len(rest) < LARGE_REST_BYTES:
            self._kept = bytes(rest)
        else:
            self._kept = b""
            self._large = LargeFrame(self._share.buffers, rest, wanted_bytes)

    def _receive_large(self, large: LargeFrame) -> None:
        budget = LARGE_TURN_BYTES_MAX
        while budget > 0 and not large.is_complete():
            try:
                count, is_short = large.receive(self._transport)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count, is_short = 0, True
            if count == 0:
                self._fail()
                return
            self._share.metrics.bytes_in += count
            budget -= count
            if is_short:
                break
        if large.is_complete():
            self._large = None
            answer = self._dispatch(self, large.frame())
            large.release()
            if answer:
                self._take_answer(answer)

    def _refuse_length(self, length: int, prefix: bytes) -> None:
        bytes_max = self._share.request_bytes_max
        self.refuse(recognise(prefix) or f"a request of {length} bytes was announced, the limit is {bytes_max}")

    # Answering

    def _take_answer(self, answer: Chunks | Deferred) -> None:
        """Send an answer now if nothing is in its way; else it waits for its turn."""
        output = self._output
        if self._owed:
            self._owe(answer)
        elif isinstance(answer, Deferred):
            if answer.done:
                self._answer(answer.chunks)
            else:
                self._owe(answer)
        elif len(answer) == 1 and not self._corked and not output.pending and type(answer[0]) is bytes:
            self._send_bytes(answer[0])
        else:
            self._answer(answer)
        if self._owed or output.pending:
            self._pause_if_owed_too_much()

    def _owe(self, answer: Deferred | Chunks) -> None:
        if self._owed is None:
            self._owed = deque()
        self._owed.append(answer)
        if isinstance(answer, Deferred):
            answer.listen(self._release)

    def _release(self) -> None:
        """An answer that was owed is there: send it, and those behind it, unless an older one is still missing."""
        owed = self._owed
        if not self._alive or owed is None:
            return
        if len(owed) == 1 and not self._corked and not self._output.pending and self._release_short(owed):
            return
        was_corked, self._corked = self._corked, self._corked or len(owed) > 1
        while owed:
            head = owed[0]
            if isinstance(head, list):
                self._answer(head)
            elif head.done:
                self._answer(head.chunks)
            else:
                break
            owed.popleft()
        self._corked = was_corked
        self._flush()
        self._after_progress()

    def _release_short(self, owed: deque[Deferred | Chunks]) -> bool:
        """The short way for the only answer that is owed, if it is a short one."""
        head = owed[0]
        if isinstance(head, list) or not head.done or len(head.chunks) != 1:
            return False
        body = head.chunks[0]
        if type(body) is not bytes or len(body) > JOINED_BYTES_MAX:
            return False
        owed.popleft()
        self._send_bytes(body)
        self._answered_shortly = False  # Its client had to wait for others; to wait for it here would cost those.
        if self._paused or self._draining:
            self._after_progress()
        return True

    def _answer(self, chunks: Chunks) -> None:
        output = self._output
        if not chunks:
            return
        if self._corked or output.pending:
            output.push_answer(chunks)
        else:
            try:
                self._share.metrics.bytes_out += output.send_short(chunks)
            except Exception as error:
                self._broken(error)
        self._flush()

    def _send_bytes(self, body: bytes) -> None:
        """The short way for the most common answer."""
        if len(body) > JOINED_BYTES_MAX:
            self._answer([body])
            return
        self._answered_shortly = True
        data = _length_bytes(len(body)) + body
        try:
            sent = self._send(data, 0)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._broken(error)
            return
        self._share.metrics.bytes_out += sent
        if sent < len(data):
            self._output.push_bytes(data[sent:])
            self._flush()

    def _uncork(self) -> None:
        self._corked = False
        if self._output.pending:
            self._flush()
            self._pause_if_owed_too_much()
            self._after_progress()

    def _flush(self) -> None:
        if self._output.pending and self._alive and not (self._corked or self._writing or self._warming):
            self._flush_now()

    def _writable(self) -> None:
        if self._alive:
            self.active_tick = self._share.idle.tick
            self._flush_now()
            self._after_progress()

    def _flush_now(self) -> None:
        try:
            outcome, sent = self._output.flush()
        except Exception as error:
            self._broken(error)
            return
        self._share.metrics.bytes_out += sent
        self._watch_writable(wanted=outcome is Flush.FULL)
        if outcome is Flush.COLD:
            self._warming = True
            self._share.start(self._warm(self._output.cold()))

    def _watch_writable(self, *, wanted: bool) -> None:
        if wanted and not self._writing:
            self._writing = True
            self._share.loop.add_writer(self._fd, self._writable)
        elif self._writing and not wanted:
            self._writing = False
            self._share.loop.remove_writer(self._fd)

    async def _warm(self, cold: FileSlice) -> None:
        """Have a thread read what comes next, then go on sending."""
        self._share.metrics.cold_reads += 1
        try:
            found = await self._share.offload.run(read_through, cold.file, cold.position, cold.length)
            if found < cold.length:
                raise FileEndedError(f"a file ends {cold.length - found} bytes before what was to be sent of it")
        except Exception as error:
            self._broken(error)
            return
        self._warming = False
        self._output.warmed(found)
        self._flush()
        self._after_progress()

    # Pausing

    def _pause_if_owed_too_much(self) -> None:
        owed = len(self._owed) if self._owed else 0
        if self._paused or (owed < IN_FLIGHT_REQUESTS_MAX and self._output.pending <= OUTPUT_BYTES_PAUSE):
            return
        self._paused = True
        self._share.metrics.reads_paused += 1

    def _stop_reading(self) -> None:
        """Only when a paused client does send: one that waits for a large answer mostly does not."""
        if self._reading:
            self._reading = False
            self._share.loop.remove_reader(self._fd)

    def _after_progress(self) -> None:
        """Something left the queues: read again if that made enough room, close if it was the last."""
        if not self._alive:
            return
        owed = len(self._owed) if self._owed else 0
        pending = self._output.pending
        if self._draining:
            if not owed and not pending:
                self._finish()
        elif self._paused and owed <= IN_FLIGHT_REQUESTS_MAX // 2 and pending <= OUTPUT_BYTES_PAUSE // 2:
            self._paused = False
            if not self._reading:
                self._reading = True
                self._share.loop.add_reader(self._fd, self._readable)
            if self._backlog is not None:
                self._share.loop.call_soon(self._take_backlog)

    # The end

    def refuse(self, reason: str) -> None:
        """Close because of what the client sent, with a line in the log."""
        if self._alive:
            self._share.metrics.connections_closed_protocol += 1
            self._share.refusals.note(self.host, self.listener, reason)
            self._fail()

    def close_idle(self) -> None:
        self._share.metrics.connections_closed_idle += 1
        self.close()

    def drain(self) -> None:
        """Read no more, send what is owed, then close."""
        if self._alive and not self._draining:
            self._draining = True
            self._paused = True
            self._after_progress()

    def close(self) -> None:
        """At once, whatever is owed."""
        if self.closed:
            return
        self.closed = True
        self._alive = False
        self._share.loop.remove_reader(self._fd)
        self._share.loop.remove_writer(self._fd)
        self._transport.close()
        self._share.idle.remove(self)
        self._output.clear()
        self._kept = b""
        self._backlog = None
        if self._large is not None:
            self._large.release()
            self._large = None
        owed, self._owed = self._owed, None
        for answer in owed or ():
            if isinstance(answer, Deferred):
                answer.cancel()
        self._on_close(self)

    def _fail(self) -> None:
        if self._alive:
            self._alive = False
            self._share.loop.call_soon(self.close)

    def _broken(self, error: Exception) -> None:
        """The client is gone, or something failed on our side: then the log says what."""
        if not isinstance(error, OSError | OttlaError):
            log.error("connection failed", peer=self.host, listener=self.listener, exc_info=error)
        elif not isinstance(error, ConnectionError | TimeoutError):
            self._share.refusals.note(self.host, self.listener, str(error), "connection failed")
        self._fail()

    def _finish(self) -> None:
        """Close so that the last answer arrives: a close with unread input would reset the connection and lose it."""
        self._transport.finish()
        try:
            for _ in range(DISCARDS_MAX):
                if not self._receive(self._share.buffers.view, RECEIVE_TURN_BYTES):
                    break
        except OSError:
            pass
        self.close()
