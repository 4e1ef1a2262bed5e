"""Ctrl-C, SIGTERM and a closed terminal: each ends the demo, but not between a process and its handle."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator, Sequence
from typing import Final

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """Each of them is a KeyboardInterrupt in this block. Whoever ignores them meanwhile need not undo that."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = [signal.signal(number, interrupt) for number in SIGNALS]
    try:
        yield
    finally:
        _restore(before)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """What comes in this block counts behind it: a process that was started in it has somebody who ends it by then."""
    came: list[int] = []
    before = [signal.signal(number, lambda which, _frame: came.append(which)) for number in SIGNALS]
    try:
        yield
    finally:
        _restore(before)
    if came:
        raise KeyboardInterrupt


@contextlib.contextmanager
def unwrapped() -> Iterator[None]:
    """An interrupt is one in this block even where a function in C was called, which may return although it was raised:
    the interpreter makes a SystemError of that."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise


def ignore() -> None:
    """From here on none of them does anything."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _restore(handlers: Sequence[object]) -> None:
    for number, handler in zip(SIGNALS, handlers, strict=True):
        signal.signal(number, handler)  # type: ignore[arg-type]
