"""One coordinator at work: a shard that is loaded, the partition that keeps its records, and those who wait for it.

Theory of operation. `submit` lets the shard decide, appends the records, replays each of them into the shard at once,
and answers. On a partition without other replicas everything is committed when the append returns, so the answer is
simply returned: no future, no task, no turn of the loop. Else the answers wait, in order, for the partition's high
watermark to pass all that the shard had appended when they were made; the partition tells when it moves. Who waits
longer than allowed gets an error, though the records stay and may still be committed.

A command may also be answered much later, by the outcome of another command or of a timer (a member that joins waits
for the others). Such a ticket is open: a future stands for it.

Effects are what a shard wants done beside its records once these are committed, such as transaction markers. They are
taken right after each decision and wait with its answers, but for them no time is up.

What an editor must keep true:
- Nothing is replayed that was not appended, and what was appended is replayed before anything else is decided.
- Answers and effects leave in the order of the decisions they rest on, never before these are committed.
- There is one timer for the shard's deadlines. It may be early, never late: a deadline that moves back is noticed when
  the old one comes. So a heartbeat costs no timer.
- A fault in a shard (any exception but ApiError) fails the request that met it, with a traceback in the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

import structlog

from ottla.core.coordination import AnswerT, Command, Outcome, Shard, Ticket
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.coordinator_log import CoordinatorLog
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from ottla.runtime.world import Clock
    from ottla.wire.batch import BatchHeader

RecordT = TypeVar("RecordT")
Effects: TypeAlias = Callable[[], None]

NEVER: Final = 1 << 62
TICKS_PER_TURN_MAX: Final = 16
RETRY_AFTER_FAULT_MS: Final = 1_000
_NO_ANSWER: Final = object()

log = structlog.get_logger("ottla.coordinators")


class _Waiting:
    """What rests on records that are not committed yet."""

    __slots__ = ("answers", "deadline", "effects", "end_offset")

    def __init__(
        self, end_offset: int, answers: list[tuple[Ticket, Any]], effects: Effects | None, deadline: float
    ) -> None:
        self.end_offset = end_offset
        self.answers = answers
        self.effects = effects
        self.deadline = deadline


class Repeated(Protocol):
    """A command that was accepted once and is asked again with other numbers: it has no effects, brings no deadline
    nearer, and writes one batch that others may follow."""

    @property
    def answer(self) -> Any:
        """Always the same, where it is accepted."""

    @property
    def decide(self) -> Callable[[int], bool]:
        """Asked at a time. False: submit it as a command. ApiError: refused, and nothing has changed."""

    @property
    def replay(self) -> Callable[[int, int, int], None]:
        """Called with the numbers and the time when they are in the log."""

    def encode(self, offset: int, leader_epoch: int, now_ms: int) -> tuple[memoryview, BatchHeader]:
        """The batch, good until this is called again."""


class CoordinatorShard(Generic[RecordT]):
    """A loaded shard on the partition that this broker leads. Watches that partition until `resign`."""

    __slots__ = (
        "_armed_ms",
        "_end_offset",
        "_expiry",
        "_log",
        "_loop",
        "_next_ticket",
        "_now_ms",
        "_on_lost",
        "_open",
        "_partition",
        "_resigned",
        "_take_effects",
        "_timeout_ms",
        "_timer",
        "_waiting",
        "epoch",
        "shard",
    )

    def __init__(
        self,
        shard: Shard[RecordT],
        coordinator_log: CoordinatorLog[RecordT],
        clock: Clock,
        *,
        epoch: int,
        commit_timeout_ms: Callable[[], int],
        on_lost: Callable[[], None] = lambda: None,
        take_effects: Callable[[CoordinatorShard[RecordT]], Effects | None] | None = None,
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        """The leader epoch of the partition, which is the coordinator's epoch."""
        self._log = coordinator_log
        self._partition = coordinator_log.partition
        self._now_ms = clock.now_ms
        self._timeout_ms = commit_timeout_ms
        self._on_lost = on_lost
        self._take_effects = take_effects
        self._loop = asyncio.get_running_loop()
        self._next_ticket = 0
        self._open: dict[Ticket, asyncio.Future[Any]] = {}
        self._waiting: deque[_Waiting] = deque()
        self._end_offset = 0
        """The end of what the shard has appended or loaded."""
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = NEVER
        self._expiry: asyncio.TimerHandle | None = None
        self._resigned = False

    @property
    def open_tickets(self) -> int:
        return len(self._open)

    @property
    def has_resigned(self) -> bool:
        return self._resigned

    @property
    def is_compressed(self) -> bool:
        """Whether its records are written compressed."""
        return self._log.codec != Codec.NONE

    def start(self, end_offset: int) -> None:
        """Everything below `end_offset` has been replayed: begin to work."""
        self._end_offset = end_offset
        self._partition.watch(self)
        self.perform(self.shard.loaded)

    # -- commands and the time

    def submit(self, command: Command[AnswerT]) -> AnswerT | Awaitable[AnswerT]:
        """The answer, or something to wait for. ApiError: refused, or not written."""
        if self._resigned:
            raise not_coordinator()
        ticket = self._next_ticket
        self._next_ticket = ticket + 1
        now_ms = self._now_ms()
        try:
            outcome = self.shard.decide(command, ticket, now_ms)
        except ApiError:
            raise
        except Exception as error:
            raise _fault("the coordinator failed on a command", error, command=type(command).__name__) from error
        if outcome.records:
            try:
                self._append(outcome, now_ms)
            except Exception as error:
                outcome = self._not_written(outcome, error, now_ms, together=True)
        effects = None if self._take_effects is None else self._take_effects(self)
        answers = outcome.answers
        if self._waiting or self._partition.high_watermark < self._end_offset:
            future = self._open_ticket(ticket)
            self._wait(answers, effects)
            self._arm(now_ms)
            return cast("Awaitable[AnswerT]", future)
        own: Any = _NO_ANSWER
        for number, answer in answers:
            if number == ticket:
                own = answer
            else:
                self._complete(number, answer)
        if own is _NO_ANSWER:
            return cast("AnswerT | Awaitable[AnswerT]", self._answer_later(ticket, effects, now_ms))
        if effects is not None:
            effects()
        self._arm(now_ms)
        if isinstance(own, ApiError):
            raise own
        return cast(AnswerT, own)

    def repeat(self, command: Repeated, offset: int, leader_epoch: int) -> Any:
        """As `submit`, for what was submitted before with other numbers; None if it has to be submitted again."""
        if self._resigned:
            return None
        now_ms = self._now_ms()
        try:
            if not command.decide(now_ms):
                return None
            batch, header = command.encode(offset, leader_epoch, now_ms)
            self._end_offset = end_offset = self._log.append_batch(batch, header, now_ms)
            command.replay(offset, leader_epoch, now_ms)
        except ApiError:
            raise
        except Exception as error:
            raise _fault("the coordinator failed on a repeated command", error) from error
        if self._waiting or self._partition.high_watermark < end_offset:
            ticket = self._next_ticket
            self._next_ticket = ticket + 1
            future = self._open_ticket(ticket)
            self._wait([(ticket, command.answer)], None)
            return future
        return command.answer

    def _answer_later(self, ticket: Ticket, effects: Effects | None, now_ms: int) -> Any:
        """Leave the ticket open, unless the effects lead to its answer at once."""
        future = self._open_ticket(ticket)
        if effects is not None:
            effects()
        self._arm(now_ms)
        return future.result() if future.done() else future

    def perform(self, step: Callable[[int], Outcome[RecordT]]) -> bool:
        """Carry out what the shard makes of something that is no command: the time, the metadata, a load.

        False after a fault.
        """
        now_ms, not_before_ms = self._now_ms(), 0
        try:
            self._perform(step, now_ms)
        except Exception as error:
            _fault("the coordinator failed", error, partition=str(self._partition.topic_partition))
            not_before_ms = now_ms + RETRY_AFTER_FAULT_MS
        self._arm(now_ms, not_before_ms)
        return not not_before_ms

    def _perform(self, step: Callable[[int], Outcome[RecordT]], now_ms: int) -> None:
        outcome = step(now_ms)
        if outcome.records:
            together = outcome.producer_id >= 0
            try:
                self._append(outcome, now_ms, together=together)
            except Exception as error:
                outcome = self._not_written(outcome, error, now_ms, together=together)
        effects = None if self._take_effects is None else self._take_effects(self)
        if outcome.answers or effects is not None:
            self._wait(outcome.answers, effects)
            self._release()

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A marker was appended to the partition by somebody else."""
        self._end_offset = self._partition.log.log_end_offset
        try:
            self.shard.replay_marker(producer_id, committed=committed)
        except Exception as error:
            _fault("the coordinator failed on a marker", error, partition=str(self._partition.topic_partition))
        self._arm(self._now_ms())

    def resign(self) -> None:
        """Another broker coordinates from now on, or nobody: tell all who wait, and let go."""
        self._resigned = True
        self._partition.unwatch(self)
        for handle in (self._timer, self._expiry):
            if handle is not None:
                handle.cancel()
        self._waiting.clear()
        tickets, self._open = self._open, {}
        for future in tickets.values():
            if not future.done():
                _settle(future, not_coordinator())

    # -- writing

    def _not_written(
        self, outcome: Outcome[RecordT], error: Exception, now_ms: int, *, together: bool
    ) -> Outcome[RecordT]:
        """The records could not be written: what the shard wants instead, or the error as the answer."""
        refused = _refusal(error)
        if outcome.not_written is not None:
            outcome = outcome.not_written(refused.code, now_ms)
            if not outcome.records:
                return outcome
            try:
                self._append(outcome, now_ms, together=together)
                return outcome
            except Exception as again:
                refused = _refusal(again)
        return Outcome(answers=[(ticket, refused) for ticket, _ in outcome.answers])

    def _append(self, outcome: Outcome[RecordT], now_ms: int, *, together: bool = True) -> None:
        """Append and replay. What was not appended was not replayed either."""
        records, producer_id = outcome.records, outcome.producer_id
        if together:
            self._end_offset = self._log.append(records, now_ms, producer_id, outcome.producer_epoch)
            self._replay(records, producer_id, outcome)
            return
        done = 0
        for written, end_offset in self._log.append_apart(records, now_ms):
            self._end_offset = end_offset
            self._replay(records[done:written], producer_id, outcome)
            done = written

    def _replay(self, records: list[RecordT], producer_id: int, outcome: Outcome[RecordT]) -> None:
        """What is in the log counts. A record on which the shard fails is passed over, as it would be at a load."""
        replay = self.shard.replay
        for record in records:
            try:
                replay(record, producer_id)
            except Exception as error:
                failed = _fault("the coordinator failed on a record", error, record=type(record).__name__)
                outcome.answers = [(ticket, failed) for ticket, _ in outcome.answers]

    # -- answers

    def _open_ticket(self, ticket: Ticket) -> asyncio.Future[Any]:
        future = self._open[ticket] = self._loop.create_future()
        return future

    def _complete(self, ticket: Ticket, answer: Any) -> None:
        future = self._open.pop(ticket, None)
        if future is not None and not future.done():
            _settle(future, answer)

    def _wait(self, answers: list[tuple[Ticket, Any]], effects: Effects | None) -> None:
        deadline = self._loop.time() + self._timeout_ms() / 1000
        self._waiting.append(_Waiting(self._end_offset, answers, effects, deadline))
        if self._expiry is None:
            self._expiry = self._loop.call_at(deadline, self._expire)

    def _release(self) -> None:
        """Let go what is committed by now."""
        while self._waiting and self._waiting[0].end_offset <= self._partition.high_watermark:
            waiting = self._waiting.popleft()
            for ticket, answer in waiting.answers:
                self._complete(ticket, answer)
            if waiting.effects is not None:
                waiting.effects()
        if not self._waiting and self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        """Fail the answers whose time is up; effects go on waiting."""
        self._expiry = None
        now = self._loop.time()
        late = ApiError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, "the coordinator's records were not committed in time; try again"
        )
        for waiting in self._waiting:
            if waiting.deadline > now:
                self._expiry = self._loop.call_at(waiting.deadline, self._expire)
                break
            for ticket, _ in waiting.answers:
                self._complete(ticket, late)
            waiting.answers = []
        self._waiting = deque(w for w in self._waiting if w.answers or w.effects is not None)

    # -- the partition

    def partition_changed(self) -> None:
        if self._partition.log_or_none is None and self._end_offset:
            # Its directory failed. Not at once: the partition is about to tell its other watchers.
            self._loop.call_soon(self._on_lost)
        elif self._waiting:
            self._release()

    def partition_gone(self) -> None:
        self._loop.call_soon(self._on_lost)

    # -- the timer

    def _arm(self, now_ms: int, not_before_ms: int = 0) -> None:
        deadline_ms = self.shard.next_deadline_ms()
        if deadline_ms is None or deadline_ms >= self._armed_ms or self._resigned:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = max(deadline_ms, not_before_ms)
        self._timer = self._loop.call_later(max(self._armed_ms - now_ms, 0) / 1000, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer, self._armed_ms = None, 0  # Nobody arms it meanwhile.
        not_before_ms = 0
        for _ in range(TICKS_PER_TURN_MAX):
            deadline_ms = self.shard.next_deadline_ms()
            if deadline_ms is None or deadline_ms > self._now_ms():
                break
            if not self.perform(self._tick):
                not_before_ms = self._now_ms() + RETRY_AFTER_FAULT_MS
                break
        self._armed_ms = NEVER
        self._arm(self._now_ms(), not_before_ms)

    def _tick(self, now_ms: int) -> Outcome[RecordT]:
        return self.shard.tick(now_ms)


def not_coordinator() -> ApiError:
    return ApiError(ErrorCode.NOT_COORDINATOR, "this broker is not the coordinator; look for it again")


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if isinstance(answer, ApiError):
        future.set_exception(answer)
        # Nobody may be waiting any more; that is no fault.
        future.exception()
    else:
        future.set_result(answer)


def _refusal(error: Exception) -> ApiError:
    """What a client is told about records that could not be written."""
    return error if isinstance(error, ApiError) else _fault("the coordinator could not write its records", error)


def _fault(event: str, error: Exception, **context: str) -> ApiError:
    """Note a fault of ours; what the client is told."""
    log.error(event, exc_info=error, **context)
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator failed on this request; the broker's log says why")
