"""ListConfigResources 0-1: the names of what has configs. Version 0 lists client metrics subscriptions only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ErrorCode
from ottla.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.core.controller.image import MetadataImage

LISTED = tuple(ResourceType)


def handle(ctx: RequestContext, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    if ctx.api_version == 0:
        types: tuple[int, ...] = (ResourceType.CLIENT_METRICS,)
    else:
        types = tuple(dict.fromkeys(request.resource_types)) or LISTED
    if any(kind not in LISTED for kind in types):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in types
            for name in _names(ctx.services.image, kind)
        ]
    )


def _names(image: MetadataImage, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return list(image.topics)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker) for broker in image.brokers]
    return [name for resource, name in image.configs if resource == kind]
