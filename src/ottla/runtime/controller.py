"""Carries commands to the controller, its records to the metadata log, and the answer back when they are committed.

Theory of operation. The node that leads the metadata quorum is the active controller, from the moment its metadata is
complete until it leads no more. Each such term has a controller of its own, built from the committed metadata: what an
earlier one had decided and not written is gone with it. Whoever waits when a term ends hears NOT_CONTROLLER, and cannot
know whether its records survive.

In a term, brokers are heard by their heartbeats. One that is silent for broker.session.timeout.ms is fenced. Nobody has
to send heartbeats to the controller in its own process: once heard there, a broker lives as long as the process.

What an editor must keep true: records reach the log in the order of the decisions, so nothing waits between `decide`
and `write`; and an answer leaves only when everything that was decided before it is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final
from uuid import UUID

import structlog

from ottla.core.controller.cluster_commands import BrokerHeartbeat, FenceBroker
from ottla.core.controller.commands import AnswerT, Command, RegisterBroker
from ottla.core.controller.controller import Controller
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.sessions import BrokerSessions
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode, OttlaError, StorageError
from ottla.runtime.quorum import MetadataQuorum

log = structlog.get_logger("ottla.controller")

FENCE_RETRY_SECONDS: Final = 0.25
_NOBODY: Final = -1


class _Term:
    """The time in which this node is the active controller."""

    __slots__ = ("controller", "ended", "epoch", "own_broker_heard", "sessions", "timer", "waiting")

    def __init__(self, controller: Controller, epoch: int, sessions: BrokerSessions) -> None:
        self.controller = controller
        self.epoch = epoch
        self.sessions = sessions
        self.own_broker_heard = False
        self.timer: asyncio.TimerHandle | None = None
        self.waiting: dict[asyncio.Future[Any], None] = {}
        self.ended = False


class ControllerDriver:
    """The controller of this node, on top of a quorum that has started: active while the node leads the quorum."""

    __slots__ = ("_config", "_listeners", "_new_uuid", "_quorum", "_tasks", "_term")

    def __init__(self, quorum: MetadataQuorum, config: BrokerConfig, new_uuid: Callable[[], UUID]) -> None:
        self._quorum = quorum
        self._config = config
        self._new_uuid = new_uuid
        self._term: _Term | None = None
        self._listeners: list[Callable[[], None]] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        quorum.subscribe_leadership(self._leadership_changed)
        self._leadership_changed()

    @property
    def is_active(self) -> bool:
        """Whether this node decides."""
        return self._term is not None

    @property
    def image(self) -> MetadataImage:
        """The metadata with everything decided so far, committed or not; only what is committed if not active."""
        return self._quorum.image if self._term is None else self._term.controller.image

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call this on the loop when a term has begun or ended."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Decide nothing any more."""
        self._end_term()
        for task in self._tasks:
            task.cancel()

    async def submit(self, command: Command[AnswerT]) -> AnswerT:
        """The answer, once everything it rests on is committed.

        Raises ApiError where the command is refused as a whole, and where its records cannot be written; NOT_CONTROLLER
        where this node is not the active controller, or is no longer by the time the answer could leave.
        """
        term = self._term
        if term is None:
            raise _not_controller()
        before = term.controller.image
        decision = term.controller.decide(command, self._quorum.next_offset)
        self._hear(term, command)
        try:
            if decision.records:
                try:
                    committed = self._quorum.write(decision.records)
                except OttlaError:
                    # Nothing was written, so nothing was decided.
                    term.controller = Controller(before, self._config, self._new_uuid)
                    raise
                await _in_term(term, committed)
            else:
                await _in_term(term, self._quorum.settled())
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return decision.answer

    # -- terms

    def _leadership_changed(self) -> None:
        leads, epoch = self._quorum.is_leader, self._quorum.epoch
        if self._term is not None and not (leads and self._term.epoch == epoch):
            self._end_term()
        if self._term is None and leads:
            self._begin_term(epoch)

    def _begin_term(self, epoch: int) -> None:
        controller = Controller(self._quorum.image, self._config, self._new_uuid)
        sessions = BrokerSessions(self._config.broker_session_timeout_ms, _now_ms())
        self._term = _Term(controller, epoch, sessions)
        log.info("this node is the active controller", epoch=epoch)
        self._watch_sessions(self._term)
        self._tell()

    def _end_term(self) -> None:
        term, self._term = self._term, None
        if term is None:
            return
        log.info("this node is the active controller no longer", epoch=term.epoch)
        term.ended = True
        if term.timer is not None:
            term.timer.cancel()
        for waiter in list(term.waiting):
            waiter.cancel()
        self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    # -- sessions

    def _hear(self, term: _Term, command: Command[Any]) -> None:
        if isinstance(command, (BrokerHeartbeat, RegisterBroker)):
            term.sessions.heard(command.broker_id, _now_ms())
            term.own_broker_heard = term.own_broker_heard or command.broker_id == self._quorum.node_id
            if term.timer is None:
                self._watch_sessions(term)

    def _watch_sessions(self, term: _Term, seconds_min: float = 0) -> None:
        """Look again when the next session ends."""
        except_for = self._quorum.node_id if term.own_broker_heard else _NOBODY
        end_ms = term.sessions.next_end_ms(term.controller.image.brokers, except_for=except_for)
        if end_ms is None:
            term.timer = None
            return
        wait_seconds = max((end_ms - _now_ms()) / 1000, seconds_min)
        term.timer = asyncio.get_running_loop().call_later(wait_seconds, self._end_sessions, term)

    def _end_sessions(self, term: _Term) -> None:
        if term.ended:
            return
        except_for = self._quorum.node_id if term.own_broker_heard else _NOBODY
        for broker in term.sessions.ended(term.controller.image.brokers, _now_ms(), except_for=except_for):
            log.warning("a broker was silent for too long and is fenced", broker=broker.id, epoch=broker.epoch)
            self._spawn(self._fence(FenceBroker(broker.id, broker.epoch)))
        self._watch_sessions(term, FENCE_RETRY_SECONDS)

    async def _fence(self, command: FenceBroker) -> None:
        try:
            await self.submit(command)
        except ApiError as error:
            log.warning("a broker could not be fenced", broker=command.broker_id, reason=str(error))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)


async def _in_term(term: _Term, awaitable: Awaitable[Any]) -> None:
    """Wait for as long as the term lasts."""
    waiter = asyncio.ensure_future(awaitable)
    term.waiting[waiter] = None
    try:
        await waiter
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if term.ended and (task is None or not task.cancelling()):
            raise _not_controller() from None
        raise
    finally:
        term.waiting.pop(waiter, None)


def _not_controller() -> ApiError:
    return ApiError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller, ask the one that is")


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000
