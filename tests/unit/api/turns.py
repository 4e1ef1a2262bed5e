"""How much of its work a handler does before others have their turn."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest


class Turns:
    """Counts calls, and the most of them between two pauses of a handler."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, api: ModuleType) -> None:
        self.calls = self.most_calls = self._in_this = 0
        monkeypatch.setattr(f"{api.__name__}.asyncio.sleep", self._pause)

    def counted(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            self._in_this += 1
            self.most_calls = max(self.most_calls, self._in_this)
            return work(*args, **kwargs)

        return count

    async def _pause(self, _: float) -> None:
        self._in_this = 0
