"""Requests of consumer groups, answered by a coordinator in memory, for tests of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from ottla.api.context import RequestContext, Services
from ottla.core.coordination import Command
from ottla.model.errors import ApiError
from ottla.wire.headers import encode_response
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
        services = SimpleNamespace(groups=self, config=coordinator.config, image=coordinator.image)
        context = RequestContext(
            services=cast(Services, services),
            api_key=request.__schema__.api_key,
            api_version=version,
            correlation_id=1,
            client_id="c",
            peer_host="10.0.0.1",
            listener="PLAINTEXT",
        )
        try:
            answer = api.handle(context, request)
            if isinstance(answer, Awaitable):
                answer = asyncio.run(_result(answer))
        except ApiError as error:
            answer = api.failed(request, error.code, error.message, version)
        assert encode_response(answer, version, 1)
        return answer


async def _result(answer: Awaitable[Any]) -> Any:
    return await answer
