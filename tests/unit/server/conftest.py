"""Each test that takes `run` and `serve` runs on both loops, and on both platforms where there are two."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from ottla.server.platform import Platform, PortablePlatform
from tests.unit.server.loopback import Serve

PLATFORMS: dict[str, Callable[[], Platform]] = {"portable": PortablePlatform}
if sys.platform == "linux":
    from ottla.server.platform import LinuxPlatform

    PLATFORMS["linux"] = LinuxPlatform

Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's coroutine to its end; a task that is left over is a failure."""
    new_loop = asyncio.new_event_loop if request.param == "asyncio" else uvloop.new_event_loop

    async def without_leftovers(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await main()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    def run_on_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(without_leftovers(main))

    return run_on_loop


@pytest.fixture(params=sorted(PLATFORMS))
def platform(request: pytest.FixtureRequest) -> Platform:
    return PLATFORMS[request.param]()


@pytest.fixture
def serve(platform: Platform) -> Serve:
    return Serve(platform)
