"""Requests of consumer groups, answered by a coordinator in memory, for tests of handlers."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from ottla.core.coordination import Command
from ottla.model.errors import ApiError
from tests.unit.api.group_requests import answered
from tests.unit.core.groups.consumers import Topics


class ConsumerRequests:
    """Stands for `Services.groups`; the time stands still."""

    def __init__(self, coordinator: Topics) -> None:
        self.coordinator = coordinator

    def submit(self, _group_id: str, command: Command[Any]) -> Any:
        answer = self.coordinator.ask(command)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def call(self, api: ModuleType, request: Any, version: int) -> Any:
        """The answer, which can be written in this version."""
        coordinator = self.coordinator
        return answered(api, request, version, groups=self, config=coordinator.config, image=coordinator.image)
