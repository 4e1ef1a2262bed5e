"""DescribeConfigs: the configs of topics, brokers and client metrics, with where each value comes from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, String, ignorable, since


class DescribeConfigsResource(Message):
    """A resource, and the configs to describe: null for all of them."""

    resource_type: Int8
    resource_name: String
    configuration_keys: Sequence[String] | None = None


class DescribeConfigsRequest(Message, api_key=32, versions=(1, 4), flexible_since=4):
    """Asks for configs of resources."""

    resources: Sequence[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Annotated[Bool, since(3)] = False


class DescribeConfigsSynonym(Message):
    """Another source that would give the config its value, in the order in which they count."""

    name: String
    value: String | None
    source: Int8


class DescribeConfigsResourceResult(Message):
    """One config with its value; the value is null where it is secret."""

    name: String
    value: String | None
    read_only: Bool
    config_source: Int8 = -1
    is_sensitive: Bool
    synonyms: Sequence[DescribeConfigsSynonym] = []
    config_type: Annotated[Int8, since(3), ignorable] = 0
    documentation: Annotated[String | None, since(3), ignorable] = None


class DescribeConfigsResult(Message):
    """The configs of one resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8
    resource_name: String
    configs: Sequence[DescribeConfigsResourceResult] = []


class DescribeConfigsResponse(Message, api_key=32, versions=(1, 4), flexible_since=4):
    """One result for each resource."""

    throttle_time_ms: Int32 = 0
    results: Sequence[DescribeConfigsResult]
