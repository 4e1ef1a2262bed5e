"""AlterConfigs: replaces all configs of a resource. IncrementalAlterConfigs is what new clients use."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, String


class AlterableConfig(Message):
    """A config and its new value; null restores the default."""

    name: String
    value: String | None


class AlterConfigsResource(Message):
    """A topic or a broker and all the configs that it shall have."""

    resource_type: Int8
    resource_name: String
    configs: Sequence[AlterableConfig]


class AlterConfigsRequest(Message, api_key=33, versions=(0, 2), flexible_since=2):
    """Replaces the configs of each resource."""

    resources: Sequence[AlterConfigsResource]
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    """What became of one resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8
    resource_name: String


class AlterConfigsResponse(Message, api_key=33, versions=(0, 2), flexible_since=2):
    """One result for each resource."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse]
