"""Requests about groups, answered by a coordinator in memory, for tests of handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import ModuleType, SimpleNamespace
from typing import Any, cast

from ottla.api.context import RequestContext, Services
from ottla.core.coordination import Command
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.headers import encode_response
from tests.unit.core.groups.coordinator import Coordinator


class GroupRequests:
    """Stands for `Services.groups`. With `refusal` every command is refused, as while a coordinator is loaded."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.refusal: ErrorCode | None = None

    def submit(self, _group_id: str, command: Command[Any]) -> Any:
        if self.refusal is not None:
            raise ApiError(self.refusal)
        ticket = self.coordinator.send(command)
        self.coordinator.pass_ms(0)
        answer = self.coordinator.answers[ticket]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def broadcast(self, make: Callable[[], Command[Any]]) -> list[Any]:
        return [self.submit("", make())]

    def call(self, api: ModuleType, request: Any, version: int) -> Any:
        """The answer, which can be written in this version."""
        return answered(api, request, version, groups=self)

    def stable_member(self) -> str:
        return self.coordinator.stable(1)[0]


def answered(api: ModuleType, request: Any, version: int, **services: object) -> Any:
    """What a handler with these services answers, which can be written in this version."""
    context = RequestContext(
        services=cast(Services, SimpleNamespace(**services)),
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
