"""IncrementalAlterConfigs 0-1: sets, removes, appends to and subtracts from single configs of a resource."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.commands import ConfigChange, IncrementalAlterConfigs, ResourceChange
from ottla.model.errors import ErrorCode
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    resources = [
        ResourceChange(
            item.resource_type,
            item.resource_name,
            [ConfigChange(config.name, config.config_operation, config.value) for config in item.configs],
        )
        for item in request.resources
    ]
    command = IncrementalAlterConfigs(resources, validate_only=request.validate_only)
    results = await ctx.services.controller.submit(command)
    return IncrementalAlterConfigsResponse(
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


def failed(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, message: str, _version: int
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
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
