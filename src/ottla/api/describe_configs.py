"""DescribeConfigs 1-4: topics, this broker, the default of all brokers, groups, client metrics subscriptions.

A broker answers for itself; the configs of another one are that one's to tell. Broker loggers are not served. Who asks
for many, as tools do that show all topics, is answered from a thread; what is asked for twice is answered once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ottla.api.cluster_view import missing_topic
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_default,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.core.controller.image import MetadataImage
    from ottla.model.configs.resolve import BrokerConfig


RESOURCES_INLINE_MAX = 8
"""A broker has some 340 configs, and a millisecond goes by until they are all told."""


class View(NamedTuple):
    """What there is to tell of, as it was when it was asked for."""

    node_id: int
    config: BrokerConfig
    image: MetadataImage


async def handle(ctx: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    services = ctx.services
    view = View(services.node_id, services.config, services.image)
    resources = {
        (item.resource_type, item.resource_name, tuple(item.configuration_keys or ())): item
        for item in request.resources
    }
    if len(resources) <= RESOURCES_INLINE_MAX:
        return _response(view, resources.values(), request)
    return await services.world.offload.run(_response, view, resources.values(), request)


def _response(
    view: View, resources: Iterable[DescribeConfigsResource], request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(view, item, request) for item in resources])


def _describe(view: View, resource: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
    try:
        entries = _entries(view, resource)
    except ApiError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    return DescribeConfigsResult(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[_config(entry, request) for entry in entries],
    )


def _entries(view: View, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name, keys, image = resource.resource_name, resource.configuration_keys, view.image
    match resource.resource_type:
        case ResourceType.TOPIC:
            if name not in image.topics:
                raise missing_topic(name)
            return describe_topic(image.topic_configs(name), view.config, keys)
        case ResourceType.BROKER if name == "":
            return describe_broker_default(image.configs_of(ResourceType.BROKER, ""), keys)
        case ResourceType.BROKER:
            if name != str(view.node_id):
                raise ApiError(ErrorCode.INVALID_REQUEST, f"this is broker {view.node_id}, not broker {name}")
            return describe_broker(view.config, keys)
        case ResourceType.GROUP | ResourceType.CLIENT_METRICS if name == "":
            raise ApiError(ErrorCode.INVALID_REQUEST, "a group or a client metrics subscription has a name")
        case ResourceType.GROUP:
            return describe_group(image.configs_of(ResourceType.GROUP, name), view.config, keys)
        case ResourceType.CLIENT_METRICS:
            return describe_client_metrics(image.configs_of(ResourceType.CLIENT_METRICS, name), keys)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"configs of resource type {resource.resource_type} cannot be described")


def _config(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in (entry.synonyms if request.include_synonyms else ())
        ],
        config_type=entry.type,
        documentation=entry.doc if request.include_documentation else None,
    )
