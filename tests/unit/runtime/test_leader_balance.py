"""Only the active controller gives leadership back, round after round until nothing is left."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ottla.core.controller.cluster_commands import BalanceLeaders
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.leader_balance import MOVES_PER_ROUND_MAX, LeaderBalance


class Controller:
    """Answers each BalanceLeaders with the next of `moves`, and then with 0."""

    def __init__(self, *moves: int, active: bool = True) -> None:
        self.is_active = active
        self.moves = list(moves)
        self.rounds = 0
        self.asked = asyncio.Event()

    async def submit(self, command: Any) -> Any:
        assert isinstance(command, BalanceLeaders)
        self.rounds += 1
        self.asked.set()
        if self.moves == [-1]:
            self.moves = []
            raise ApiError(ErrorCode.NOT_CONTROLLER, "not any more")
        return self.moves.pop(0) if self.moves else 0


class Config:
    """The two keys that matter, without the bounds of the real ones."""

    def __init__(self, *, enabled: bool = True) -> None:
        self._values = {"auto.leader.rebalance.enable": enabled, "leader.imbalance.check.interval.seconds": 0}

    def get(self, key: str) -> object:
        return self._values[key]


def balance_of(controller: Controller, *, enabled: bool = True) -> LeaderBalance:
    return LeaderBalance(controller, lambda: cast(BrokerConfig, Config(enabled=enabled)))


def test_a_full_round_is_followed_by_another() -> None:
    controller = Controller(MOVES_PER_ROUND_MAX, 5)
    assert asyncio.run(balance_of(controller).balance()) == MOVES_PER_ROUND_MAX + 5
    assert controller.rounds == 2


def test_who_is_not_active_asks_nothing() -> None:
    controller = Controller(active=False)
    assert asyncio.run(balance_of(controller).balance()) == 0
    assert controller.rounds == 0


async def asked_times(controller: Controller, times: int, *, enabled: bool = True) -> None:
    balance = balance_of(controller, enabled=enabled)
    balance.start()
    for _ in range(times):
        await asyncio.wait_for(controller.asked.wait(), 10)
        controller.asked.clear()
    await balance.stop()


def test_it_goes_on_after_a_failure() -> None:
    controller = Controller(-1)
    asyncio.run(asked_times(controller, 3))
    assert controller.rounds >= 3


def test_it_can_be_switched_off() -> None:
    controller = Controller()
    asyncio.run(asked_times(controller, 0, enabled=False))
    assert controller.rounds == 0
