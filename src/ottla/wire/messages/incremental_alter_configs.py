"""IncrementalAlterConfigs: sets, deletes, appends to or subtracts from single configs of a resource."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, String


class AlterableConfig(Message):
    """A config, what to do with it (0 set, 1 delete, 2 append, 3 subtract), and the value to do it with."""

    name: String
    config_operation: Int8
    value: String | None


class AlterConfigsResource(Message):
    """A resource and the changes to its configs."""

    resource_type: Int8
    resource_name: String
    configs: Sequence[AlterableConfig]


class IncrementalAlterConfigsRequest(Message, api_key=44, versions=(0, 1), flexible_since=1):
    """Changes single configs of resources."""

    resources: Sequence[AlterConfigsResource]
    validate_only: Bool = False


class AlterConfigsResourceResponse(Message):
    """What became of one resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8
    resource_name: String


class IncrementalAlterConfigsResponse(Message, api_key=44, versions=(0, 1), flexible_since=1):
    """One result for each resource."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[AlterConfigsResourceResponse]
