"""Ctrl-C for a command that reads its input and sends it on: it ends the input, not what is being sent.

An exception out of the blue could strike between the bytes of an answer, and nobody would know any more what has
arrived. So the first Ctrl-C only wakes up the read of the input. A second one interrupts wherever the program is.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class InputInterruptedError(Exception):
    """Ctrl-C, while or before input was waited for."""


class Interrupts:
    """Takes Ctrl-C for as long as the `with` block lasts, if this is the main thread; else it changes nothing."""

    __slots__ = ("_previous", "_reader", "_writer")

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._previous: object = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._on_interrupt)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)  # type: ignore[arg-type]
        os.close(self._reader)
        os.close(self._writer)

    def _on_interrupt(self, _number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.write(self._writer, b"!")

    def read(self, descriptor: int, size: int) -> bytes:
        """As `os.read`, but InputInterruptedError when Ctrl-C has come."""
        ready, _, _ = select.select([descriptor, self._reader], [], [])
        if self._reader in ready:
            raise InputInterruptedError
        return os.read(descriptor, size)
