"""The way to the active controller, wherever it is: in this process, or on another node.

Theory of operation. A command goes to this node's own controller while that is active, else as a message to the node
that leads the quorum; while nobody leads, the voters are asked in turn. Whoever says NOT_CONTROLLER, or nothing, is
asked again after a wait, until the time is over. The wait ends early when this node hears of another leader, and a
connection to the old one is left then: what a controller that froze will never answer is asked of its successor.

So a command may be carried out twice; those that brokers send bear it (see `controller_requests`). A client's request
that is handed on may come twice too, as when the client itself had asked again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from ottla.core.controller.commands import AnswerT, Command
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.controller_requests import as_request, raise_for
from ottla.runtime.network import PeerError
from ottla.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from ottla.wire.schema import encode

if TYPE_CHECKING:
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.peer_targets import Address
    from ottla.runtime.peers import Peer, Peers

BACKOFF_MS_MIN: Final = 10
BACKOFF_MS_MAX: Final = 250
COMMAND_MS_MAX: Final = 10_000
"""Somebody else's request often waits for the answer, and must be answered in its own time."""
ATTEMPT_MS_MAX: Final = 5000
"""A command is small: a controller that does not answer it for so long is asked over a new connection."""
FORWARD_MS_MAX: Final = 15_000
"""A client's request waits for a controller to be found for so long; its client's time-out is often 30 s."""
COMMAND_LANE: Final = "controller"
FORWARD_LANE: Final = "forwarding"
"""Apart from the commands: a large CreateTopics must not hold up a heartbeat."""

T = TypeVar("T")


class LocalController(Protocol):
    """The controller in this process."""

    @property
    def is_active(self) -> bool: ...

    async def submit(self, command: Command[AnswerT]) -> AnswerT: ...


class Leadership(Protocol):
    """Who leads the quorum, as far as this node knows."""

    @property
    def node_id(self) -> int: ...

    @property
    def leader_id(self) -> int: ...

    def address_of_leader(self) -> Address | None: ...

    def subscribe_leadership(self, listener: Callable[[], None]) -> None: ...


class ControllerChannel:
    """Asks the active controller."""

    __slots__ = ("_changed", "_config", "_controller", "_peers", "_quorum", "_rng")

    def __init__(
        self,
        controller: LocalController,
        quorum: Leadership,
        peers: Peers,
        rng: random.Random,
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._controller = controller
        self._quorum = quorum
        self._peers = peers
        self._rng = rng
        self._config = config
        self._changed = asyncio.Event()
        quorum.subscribe_leadership(self._leadership_changed)

    @property
    def is_here(self) -> bool:
        """Whether this node is the active controller."""
        return self._controller.is_active

    async def submit(self, command: Command[AnswerT], *, timeout_ms: int | None = None) -> AnswerT:
        """The command's answer. ApiError or PeerError where it is refused, or nobody took it in time.

        Without a time of its own it has that of controller.socket.timeout.ms, or less if that is long.
        """

        async def ask(peer: Peer, left_ms: int) -> AnswerT:
            request = as_request(command)
            attempt_ms = min(left_ms, ATTEMPT_MS_MAX)
            response = await peer.request(request.message, request.response, timeout_ms=attempt_ms)
            answer: AnswerT = request.answer(response)
            return answer

        limit_ms = timeout_ms or min(self._config().controller_socket_timeout_ms, COMMAND_MS_MAX)
        return await self._ask(COMMAND_LANE, lambda: self._controller.submit(command), ask, limit_ms)

    async def forward(self, frame: bytes, *, principal: str, host: str) -> bytes | None:
        """The finished answer to a client's request, of the controller on another node; None if it is to be had here.

        ApiError NOT_CONTROLLER if there is no controller within a time that clients bear.
        """
        envelope = EnvelopeRequest(
            request_data=frame, request_principal=encode_principal(principal), client_host_address=encode_host(host)
        )

        async def ask(peer: Peer, _left_ms: int) -> bytes | None:
            # A controller that is there may take its time: a request with many topics does.
            answer_ms = self._config().controller_socket_timeout_ms
            response = await peer.request(envelope, EnvelopeResponse, timeout_ms=answer_ms)
            raise_for(response.error_code, "a request that was handed on to it")
            if response.response_data is None:
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's answer holds nothing")
            return response.response_data

        limit_ms = min(self._config().controller_socket_timeout_ms, FORWARD_MS_MAX)
        try:
            return await self._ask(FORWARD_LANE, _nothing, ask, limit_ms)
        except PeerError as error:
            message = f"no controller could be asked, try again: {error}"
            raise ApiError(ErrorCode.NOT_CONTROLLER, message) from error

    async def _ask(
        self,
        lane: str,
        here: Callable[[], Awaitable[T]],
        there: Callable[[Peer, int], Awaitable[T]],
        timeout_ms: int,
    ) -> T:
        clock = asyncio.get_running_loop().time
        deadline = clock() + timeout_ms / 1000
        backoff_ms = BACKOFF_MS_MIN
        peer = self._peers.to_controller(lane)
        while True:
            left_ms = max(1, int((deadline - clock()) * 1000))
            changed = self._changed
            try:
                if self._controller.is_active:
                    return await here()
                self._check_leader()
                return await there(peer, left_ms)
            except PeerError as error:
                failure: ApiError | PeerError = error
            except ApiError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
                failure = error
                if self._quorum.address_of_leader() is None:
                    peer.reset("it is not the active controller")
            pause = self._rng.uniform(0.5, 1) * backoff_ms / 1000
            if clock() + pause >= deadline:
                raise failure
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await changed.wait()
            backoff_ms = min(2 * backoff_ms, BACKOFF_MS_MAX)

    def _check_leader(self) -> None:
        if self._quorum.leader_id == self._quorum.node_id:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node was elected and is not yet the active controller")

    def _leadership_changed(self) -> None:
        self._peers.controller_changed()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


async def _nothing() -> None:
    return None


def encode_principal(principal: str) -> bytes:
    """`Type:name` as Kafka's envelopes hold it."""
    kind, _, name = principal.partition(":")
    return encode(DefaultPrincipalData(type=kind, name=name), 0, b"\0\0")


def encode_host(host: str) -> bytes:
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            return socket.inet_pton(family, host.partition("%")[0])
    return bytes(4)
