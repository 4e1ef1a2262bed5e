"""What a connection owes its client: answers in the order of the requests, and a pause where the client takes none.

Theory of operation. An answer that is ready while nothing older is owed is sent at once; else it waits in `_owed`
behind the older ones. What the socket does not take waits in `_output`. While further frames lie in the receive buffer,
answers are only queued (`_corked`), and leave together when the last one is handled. A client that is owed too much is
no longer read until it has taken half of that. An answer that may be large counts as several (`Deferred.weight`), since
nobody knows how large it is before it is made.

Produce requests that were taken (`api.produce_turn`) are answered here too, when their turn of the loop ends: `taken`
counts them, and the answers to those of one connection leave together.

Where many clients ask at a time a short answer waits in `_leaving` for the end of the turn (`turn`). Where a client is
owed several answers, those that are there leave together when the turn ends: one follower's fetch mostly makes several
of them true.

What an editor must keep true:
- Every answer passes `_owed` if anything is in it, and leaves after what is in `_leaving`.
- After `_alive` is False nothing is dispatched and nothing is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from struct import Struct
from typing import Final

from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks, FileSlice
from ottla.model.limits import IN_FLIGHT_REQUESTS_MAX, OUTPUT_BYTES_PAUSE
from ottla.runtime.remembered_fetches import RememberedFetch
from ottla.runtime.repeated_fetches import RepeatedFetch
from ottla.server.dispatch import Dispatch
from ottla.server.output import JOINED_BYTES_MAX, FileEndedError, Flush, Output
from ottla.server.platform import read_through
from ottla.server.receive import LENGTH_BYTES
from ottla.server.share import LoopShare
from ottla.server.transport import Transport

LEAVING_BYTES_MAX: Final = 1024
"""A longer answer does not wait for others."""
OLDER_ANSWERS_MIN: Final = 3
"""A client that asks while it waits for so many answers sends as much as it may. Java's producers stop at five."""

_length_bytes: Final = Struct(">i").pack


class Answering(ABC):
    """The answering side of a connection."""

    __slots__ = (
        "_alive",
        "_answered_shortly",
        "_corked",
        "_dispatch",
        "_draining",
        "_fd",
        "_leaving",
        "_output",
        "_owed",
        "_owed_weight",
        "_paused",
        "_releasing",
        "_send",
        "_share",
        "_warming",
        "_writing",
        "active_tick",
        "host",
        "listener",
        "principal",
        "remembered_fetch",
        "repeated_fetch",
        "taken",
    )

    def __init__(self, transport: Transport, share: LoopShare, dispatch: Dispatch, *, host: str, listener: str) -> None:
        self.host = host
        self.listener = listener
        self.principal = "User:ANONYMOUS"
        self.active_tick = 0
        self.remembered_fetch: RememberedFetch | None = None
        self.repeated_fetch: RepeatedFetch | None = None
        self.taken = 0
        self._fd = transport.fileno()
        self._send = transport.send
        self._share = share
        self._dispatch = dispatch
        self._alive = True
        self._draining = False
        self._owed: deque[Deferred | Chunks] | None = None
        self._owed_weight = 0
        """What is in `_owed`, in usual answers."""
        self._corked = False
        self._leaving = b""
        """An answer that waits for the end of the turn."""
        self._paused = False
        self._releasing = False
        """Answers that were owed are there, and leave when the loop has looked at all its sockets."""
        self._answered_shortly = False
        """Whether the last answer was one that a client waits for before it asks again."""
        self._writing = False
        self._warming = False
        self._output = Output(transport, share.platform, share.staging)

    @abstractmethod
    def refuse(self, reason: str) -> None:
        """Close because of what the client sent, with a line in the log."""

    @abstractmethod
    def _broken(self, error: Exception) -> None:
        """The client is gone, or something failed on our side: then the log says what."""

    @abstractmethod
    def _finish(self) -> None:
        """Everything was sent: close so that the last answer arrives."""

    @abstractmethod
    def _read_again(self) -> None:
        """The client has taken enough of what it was owed."""

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
            turn = self._share.turn
            turn.answers += 1
            if turn.has_many and len(answer[0]) <= LEAVING_BYTES_MAX:
                self._leave_later(_length_bytes(len(answer[0])) + answer[0])
            else:
                self._send_bytes(answer[0])
        else:
            self._answer(answer)
        if self._owed or output.pending:
            self._pause_if_owed_too_much()

    def _take_answers(self, data: bytes) -> None:
        """Send answers, each behind its size, now or behind those that wait to be sent; none is owed."""
        output, turn = self._output, self._share.turn
        if self._corked or output.pending:
            self.leave()
            output.push_bytes(data)
            self._flush()
        else:
            turn.answers += 1
            if turn.has_many and len(data) <= LEAVING_BYTES_MAX:
                self._leave_later(data)
            else:
                self.leave()
                self._send_data(data)
        if output.pending:
            self._pause_if_owed_too_much()

    def _owe(self, answer: Deferred | Chunks) -> None:
        if self._owed is None:
            self._owed = deque()
        self._owed.append(answer)
        self._owed_weight += _weight(answer)
        if isinstance(answer, Deferred):
            answer.is_behind = len(self._owed) > OLDER_ANSWERS_MIN
            answer.listen(self._release)

    def _release(self) -> None:
        """An answer that was owed is there: send it, and those behind it, unless an older one is still missing."""
        owed = self._owed
        if not self._alive or owed is None:
            return
        if len(owed) > 1:
            # What makes one answer true mostly does so for those behind it: they leave together.
            if not self._releasing and not self._is_missing(owed[0]):
                self._releasing = True
                self._share.loop.call_soon(self._release_ready)
        elif self._corked or self._output.pending or not self._release_short(owed):
            self._release_ready()

    @staticmethod
    def _is_missing(answer: Deferred | Chunks) -> bool:
        return isinstance(answer, Deferred) and not answer.done

    def _release_ready(self) -> None:
        """Send what is owed up to the first answer that is missing."""
        self._releasing = False
        owed = self._owed
        if not self._alive or not owed:
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
            self._owed_weight -= _weight(owed.popleft())
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
        self._owed_weight -= _weight(owed.popleft())
        self._send_bytes(body)
        self._answered_shortly = False  # Its client had to wait for others; to wait for it here would cost those.
        if self._paused or self._draining:
            self._after_progress()
        return True

    def _answer(self, chunks: Chunks) -> None:
        if self._leaving:
            self.leave()
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
        if self._leaving:
            self.leave()
        self._answered_shortly = True
        self._send_data(_length_bytes(len(body)) + body)

    def _send_data(self, data: bytes) -> None:
        """Send an answer with its size, with nothing in its way."""
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

    def _leave_later(self, data: bytes) -> None:
        """Send an answer, which has its size in front, when the turn ends, or before the next one."""
        if self._leaving:
            self.leave()
        share = self._share
        self._leaving = data
        share.turn.leaving.append(self)
        if not share.attention.touched:
            share.attention.touch()

    def leave(self) -> None:
        """Send what was to leave when the turn ends, if it has not left."""
        data, self._leaving = self._leaving, b""
        if data and self._alive:
            self._send_data(data)

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

    # Requests that were taken

    def settled(self, data: bytes) -> None:
        """The answer to a request that was taken."""
        if self._leaving:
            self.leave()
        left = self.taken = self.taken - 1
        if left or self._owed or self._corked or self._output.pending or not self._alive:
            self._settled_behind(data, left)
        else:
            self._send_data(data)

    def _settled_behind(self, data: bytes, left: int) -> None:
        if not self._alive:
            return
        if self._owed:
            self._owe([data[LENGTH_BYTES:]])
        else:
            self._output.push_bytes(data)
        if not left:
            self._flush()
            self._pause_if_owed_too_much()
            self._after_progress()

    def settled_later(self, answer: Deferred) -> None:
        self.taken -= 1
        if self._alive:
            self._take_answer(answer)
        else:
            answer.cancel()

    def serve_taken(self, frame: memoryview) -> None:
        self.taken -= 1
        if self._alive:
            answer = self._dispatch(self, frame)
            if answer:
                self._take_answer(answer)

    def taken_failed(self, error: Exception) -> None:
        self.taken = 0
        self._broken(error)

    # Pausing

    def _pause_if_owed_too_much(self) -> None:
        if self._paused or (self._owed_weight < IN_FLIGHT_REQUESTS_MAX and self._output.pending <= OUTPUT_BYTES_PAUSE):
            return
        self._paused = True
        self._share.metrics.reads_paused += 1

    def _after_progress(self) -> None:
        """Something left the queues: read again if that made enough room, close if it was the last."""
        if not self._alive:
            return
        pending = self._output.pending
        if self._draining:
            if not self._owed and not pending:
                self._finish()
        elif self._paused and self._owed_weight <= IN_FLIGHT_REQUESTS_MAX // 2 and pending <= OUTPUT_BYTES_PAUSE // 2:
            self._paused = False
            self._read_again()


def _weight(answer: Deferred | Chunks) -> int:
    return answer.weight if isinstance(answer, Deferred) else 1
