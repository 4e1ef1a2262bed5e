"""ListConfigResources: the names of what has configs; version 0 was ListClientMetricsResources."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int8, Int16, Int32, Message, String, ignorable, since


class ListConfigResourcesRequest(Message, api_key=74, versions=(0, 1), flexible_since=0):
    """Asks for resources of some types; an empty list means all."""

    resource_types: Annotated[Sequence[Int8], since(1)] = []


class ConfigResource(Message):
    """One resource that has configs."""

    resource_name: String
    resource_type: Annotated[Int8, since(1), ignorable] = 16


class ListConfigResourcesResponse(Message, api_key=74, versions=(0, 1), flexible_since=0):
    """The resources."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: Sequence[ConfigResource]
