"""Waiting for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable


class TooLate(Exception):
    """Something did not come within its time; the message says what."""


def until(condition: Callable[[], bool], what: str, seconds_max: float) -> None:
    """Return when the condition holds."""
    end = time.monotonic() + seconds_max
    while not condition():
        if time.monotonic() > end:
            raise TooLate(f"not within {seconds_max:.0f} s: {what}")
        time.sleep(0.02)
