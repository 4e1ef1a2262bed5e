"""The lag of the loop: a slow callback shows, whatever loop it is."""

from __future__ import annotations

import time

import pytest

from ottla.server import loop_watch
from ottla.server.loop_watch import LoopWatch
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import until


def test_a_callback_that_holds_up_the_loop_is_seen(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "INTERVAL_SECONDS", 0.02)

    async def main() -> None:
        watch = LoopWatch()
        watch.start()
        try:
            deadline = time.monotonic() + 0.1
            while time.monotonic() < deadline:
                pass
            await until(lambda: watch.lag_seconds_max > 0)
            assert watch.lag_seconds_max >= 0.07
            # The loop's thread was busy all that time, unless the machine gave its time to others.
            assert 0 <= watch.idle_ratio < 1
        finally:
            watch.stop()

    run(main)


def test_nothing_is_left_after_the_watch_has_stopped(run: Run) -> None:
    async def main() -> None:
        watch = LoopWatch()
        watch.stop()
        watch.start()
        watch.stop()
        assert (watch.lag_seconds, watch.lag_seconds_max, watch.idle_ratio) == (0.0, 0.0, 1.0)

    run(main)


def test_a_bad_minute_is_forgotten_after_a_good_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_watch, "INTERVAL_SECONDS", 0.001)

    async def main() -> None:
        watch = LoopWatch()
        watch._lags.append(1000.0)
        watch.start()
        try:
            assert watch.lag_seconds_max == 1000.0
            await until(lambda: watch.lag_seconds_max < 1000.0)
        finally:
            watch.stop()

    run(main)
