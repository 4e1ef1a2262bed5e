"""One client: frames in, answers out in the order of the requests.

Theory of operation. The loop calls `_readable`. Bytes go into the loop's receive buffer, complete frames are
dispatched where they lie, and what is left is kept (see `receive`). What becomes of the answers is told in `answering`.

A turn is short: one receive, a bounded number of frames, a bounded number of bytes out. Frames of a client that is owed
too much, and that were received already, wait in `_backlog`.

Which frames of a receive are served one by one and which together is told in `frame_serving`.

Two ways to the end. `_fail` and `refuse` may be called from anywhere, also from inside somebody else's request whose
answer to this client failed; so they only mark the connection, and `close` runs as a callback of its own. `drain`
lets a connection finish what it owes.

What an editor must keep true:
- Nothing but the loop calls `_readable`: the receive buffer may be in use by another connection.
- After `_alive` is False nothing is dispatched and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

from ottla.api.deferred import Deferred
from ottla.model.errors import OttlaError
from ottla.server.answering import Answering
from ottla.server.dispatch import Dispatch as Dispatch
from ottla.server.frame_serving import FrameServing
from ottla.server.receive import FIRST_LOOK_BYTES, LARGE_REST_BYTES, RECEIVE_TURN_BYTES, LargeFrame
from ottla.server.refusals import recognise
from ottla.server.share import LoopShare
from ottla.server.transport import Transport
from ottla.wire.produce_lead import Lead
from ottla.wire.produce_shape import RequestShape

SHORT_REQUEST_BYTES_MAX: Final = 1024
"""Who sends this little at a time waits for each answer, and the next request is close."""
LARGE_TURN_BYTES_MAX: Final = 1 << 20
"""Received of a large frame before the others have their turn."""
DISCARDS_MAX: Final = 16
"""Receives of input that nobody will look at, before a connection is closed regardless."""

log = structlog.get_logger("ottla.server")


class Connection(Answering, FrameServing):
    """A client's connection, from its acceptance to its close."""

    __slots__ = (
        "_backlog",
        "_kept",
        "_large",
        "_on_close",
        "_reading",
        "_receive",
        "_receive_bytes",
        "_transport",
        "closed",
        "idle_bucket",
        "produce_lead",
        "produce_lead_skipped",
        "produce_shape",
        "produce_skipped",
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
        super().__init__(transport, share, dispatch, host=host, listener=listener)
        self.closed = False
        self.idle_bucket = 0
        self.produce_lead: Lead | None = None
        self.produce_lead_skipped = 0
        self.produce_shape: RequestShape | None = None
        self.produce_skipped = 0
        self._transport = transport
        self._receive = transport.recv_into
        self._receive_bytes = RECEIVE_TURN_BYTES
        """Asked for next."""
        self._on_close = on_close
        self._kept = b""
        self._backlog: memoryview | None = None
        """Frames of an earlier turn; a callback that takes them is scheduled unless reading is paused."""
        self._large: LargeFrame | None = None
        self._reading = True
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
                    count = self._receive(view[kept:], self._receive_bytes)
                else:
                    count = self._receive(view, self._receive_bytes)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                count = 0
            if count:
                share.metrics.bytes_in += count
                self._take_frames(view, kept + count)
                self._receive_bytes = RECEIVE_TURN_BYTES
                if self._corked or self._output.pending:
                    self._uncork()
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
            if self._corked or self._output.pending:
                self._uncork()
        except Exception as error:
            self._broken(error)

    def _postpone(self, frames: memoryview) -> None:
        shared = self._share.buffers.view
        self._backlog = memoryview(bytearray(frames)) if frames.obj is shared.obj else frames
        if not self._paused:
            self._share.loop.call_soon(self._take_backlog)

    def _keep(self, rest: memoryview, wanted_bytes: int) -> None:
        buffers, was_first_look = self._share.buffers, self._receive_bytes == FIRST_LOOK_BYTES
        if len(rest) >= LARGE_REST_BYTES or (was_first_look and buffers.has_idle(wanted_bytes)):
            self._kept = b""
            self._large = LargeFrame(buffers, rest, wanted_bytes)
        else:
            self._kept = bytes(rest)

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
            if self.taken:
                self._share.turn.produce.settle()
            frame = large.frame()
            if not frame[1] and not frame[0]:  # Produce
                self._serve_together([frame])
            else:
                self._serve(frame)
            large.release()
            if large.is_very_large():
                self._receive_bytes = FIRST_LOOK_BYTES

    def _refuse_length(self, length: int, prefix: bytes) -> None:
        bytes_max = self._share.request_bytes_max
        self.refuse(recognise(prefix) or f"a request of {length} bytes was announced, the limit is {bytes_max}")

    # Pausing

    def _stop_reading(self) -> None:
        """Only when a paused client does send: one that waits for a large answer mostly does not."""
        if self._reading:
            self._reading = False
            self._share.loop.remove_reader(self._fd)

    def _read_again(self) -> None:
        if not self._reading:
            self._reading = True
            self._share.loop.add_reader(self._fd, self._readable)
        if self._backlog is not None:
            self._share.loop.call_soon(self._take_backlog)

    # The end

    def look(self) -> None:
        """See whether the client is gone, see `gone_clients`: then what it has sent is read, and the end behind it."""
        if self._alive and self._reading and self._transport.has_failed():
            self._share.loop.remove_reader(self._fd)
            self._share.loop.add_reader(self._fd, self._readable)

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
        if self.taken:
            self._share.turn.produce.settle()
        self.leave()
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
        self._forget()
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
