"""AlterConfigs 0-2: replaces all configs of a resource. Clients of today use IncrementalAlterConfigs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.commands import AlterConfigs, ResourceConfigs
from ottla.model.errors import ErrorCode
from ottla.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    resources = [
        ResourceConfigs(
            item.resource_type, item.resource_name, [(config.name, config.value) for config in item.configs]
        )
        for item in request.resources
    ]
    results = await ctx.services.controller.submit(AlterConfigs(resources, validate_only=request.validate_only))
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=result.outcome.code,
                error_message=result.outcome.message,
                resource_type=result.type,
                resource_name=result.name,
            )
            for result in results
        ]
    )


def failed(request: AlterConfigsRequest, code: ErrorCode, message: str, _version: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=code,
                error_message=message,
                resource_type=item.resource_type,
                resource_name=item.resource_name,
            )
            for item in request.resources
        ]
    )
