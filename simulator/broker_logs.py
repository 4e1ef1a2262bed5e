"""What the brokers log, by node: into the trace, and an exception that nobody expected is a finding."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger

LogEvent = Callable[[str, str, str, BaseException | None], None]
"""Node, level, text, exception."""

_take: list[LogEvent] = []


def capture(take: LogEvent, *, everything: bool) -> None:
    """Hand events to `take` from now on; of those below a warning only if everything is wanted."""
    _take[:] = [take]
    structlog.configure(
        processors=[_hand_on],
        wrapper_class=structlog.make_filtering_bound_logger(10 if everything else 30),
        cache_logger_on_first_use=False,
    )


def _hand_on(logger: WrappedLogger, method: str, event: EventDict) -> Any:
    loop = asyncio._get_running_loop()
    error = event.pop("exc_info", None)
    values = " ".join(f"{name}={value!r}" for name, value in event.items() if name != "event")
    if _take:
        _take[0](
            getattr(loop, "name", "?"),
            method,
            f"{event.get('event')} {values}".rstrip(),
            error if isinstance(error, BaseException) else None,
        )
    raise structlog.DropEvent


def describe(error: BaseException) -> str:
    """An exception with the places that it came through, the innermost ones."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(
        f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in reversed(frames)
    )
    return f"{type(error).__name__}: {error} [{places}]"
