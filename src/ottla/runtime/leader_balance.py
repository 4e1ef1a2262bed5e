"""Looks now and then whether partitions are led by others than their preferred leaders, and gives them back.

Runs on every node that may be the active controller; only the one that is does something.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, cast

import structlog

from ottla.core.controller.cluster_commands import BalanceLeaders
from ottla.core.controller.commands import AnswerT, Command
from ottla.model.errors import OttlaError

if TYPE_CHECKING:
    from ottla.model.configs.resolve import BrokerConfig

log = structlog.get_logger("ottla.controller")

MOVES_PER_ROUND_MAX: Final = 1_000
IMBALANCE_PERCENTAGE_MAX: Final = 0
"""Kafka 4 gives back every partition, and has no key for it any more."""
BETWEEN_ROUNDS_SECONDS: Final = 0.1


class Decider(Protocol):
    """The controller, as far as it matters here."""

    @property
    def is_active(self) -> bool: ...

    async def submit(self, command: Command[AnswerT]) -> AnswerT: ...


class LeaderBalance:
    """The timer of `auto.leader.rebalance.enable`."""

    __slots__ = ("_config", "_controller", "_task")

    def __init__(self, controller: Decider, config: Callable[[], BrokerConfig]) -> None:
        self._controller = controller
        self._config = config
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._config().get("auto.leader.rebalance.enable"):
            self._task = asyncio.ensure_future(self._repeat())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(cast(int, self._config().get("leader.imbalance.check.interval.seconds")))
            try:
                await self.balance()
            except OttlaError as error:
                log.warning("leaders could not be balanced", reason=str(error))

    async def balance(self) -> int:
        """Give back all there is to give back, some at a time; answers how many moved."""
        moved = 0
        while self._controller.is_active:
            moves = await self._controller.submit(BalanceLeaders(IMBALANCE_PERCENTAGE_MAX, MOVES_PER_ROUND_MAX))
            moved += moves
            if moves < MOVES_PER_ROUND_MAX:
                break
            await asyncio.sleep(BETWEEN_ROUNDS_SECONDS)
        if moved:
            log.info("leadership went back to preferred leaders", partitions=moved)
        return moved
