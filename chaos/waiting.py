"""Waiting for what must come."""

from __future__ import annotations

import time
from collections.abc import Callable


class TooLate(Exception):
    """Something did not come within its time; the message says what."""


def until(condition: Callable[[], bool], what: str, seconds_max: float) -> float:
    """Return when the condition holds, with the seconds that it took."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds_max:
            raise TooLate(f"not within {seconds_max:.0f} s: {what}")
        time.sleep(0.02)
    return time.monotonic() - began
