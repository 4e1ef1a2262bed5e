"""The one place that says which APIs there are.

Dispatch, ApiVersions, permissions and docs/protocol-support.md are all read off this table. An API that is not in it
is not served: a client that asks for it anyway loses its connection, as with Kafka.
"""

from __future__ import annotations

from typing import Final

from ottla.api import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    get_telemetry_subscriptions,
    incremental_alter_configs,
    init_producer_id,
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    update_features,
)
from ottla.api.entry import Api, ErrorResponse, Handler, Operation, Permission, Resource
from ottla.wire import fetch_types
from ottla.wire import produce as produce_codec
from ottla.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from ottla.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from ottla.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from ottla.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.wire.schema import Message


def _api(
    request: type[Message],
    response: type[Message],
    handler: Handler,
    permission: Permission | None,
    *,
    error_response: ErrorResponse | None = None,
    heavy: bool = False,
) -> Api:
    """An entry for an API whose messages are declared: key, name and versions are those of the request."""
    schema = request.__schema__
    if schema is None or schema.api_key is None:
        raise TypeError(f"{request.__name__} is no request")
    return Api(
        key=schema.api_key,
        name=request.__name__.removesuffix("Request"),
        min_version=schema.versions[0],
        max_version=schema.versions[1],
        handler=handler,
        permission=permission,
        heavy=heavy,
        request=request,
        response=response,
        error_response=error_response,
    )


def _may(resource: Resource, operation: Operation) -> Permission:
    return Permission(resource, operation)


_CLUSTER, _TOPIC = Resource.CLUSTER, Resource.TOPIC

APIS: Final[tuple[Api, ...]] = (
    Api(
        key=0,
        name="Produce",
        min_version=produce_codec.VERSION_MIN,
        max_version=produce_codec.VERSION_MAX,
        handler=produce.handle,
        permission=_may(_TOPIC, Operation.WRITE),
        hot=True,
    ),
    Api(
        key=1,
        name="Fetch",
        min_version=fetch_types.VERSION_MIN,
        max_version=fetch_types.VERSION_MAX,
        handler=fetch.handle,
        permission=_may(_TOPIC, Operation.READ),
        hot=True,
    ),
    _api(ListOffsetsRequest, ListOffsetsResponse, list_offsets.handle, _may(_TOPIC, Operation.DESCRIBE), heavy=True),
    _api(MetadataRequest, MetadataResponse, metadata.handle, _may(_TOPIC, Operation.DESCRIBE), heavy=True),
    _api(ApiVersionsRequest, ApiVersionsResponse, api_versions.handle, None),
    _api(
        CreateTopicsRequest,
        CreateTopicsResponse,
        create_topics.handle,
        _may(_CLUSTER, Operation.CREATE),
        error_response=create_topics.failed,
        heavy=True,
    ),
    _api(
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        delete_topics.handle,
        _may(_TOPIC, Operation.DELETE),
        error_response=delete_topics.failed,
        heavy=True,
    ),
    _api(DeleteRecordsRequest, DeleteRecordsResponse, delete_records.handle, _may(_TOPIC, Operation.DELETE)),
    _api(
        InitProducerIdRequest,
        InitProducerIdResponse,
        init_producer_id.handle,
        _may(_CLUSTER, Operation.IDEMPOTENT_WRITE),
        error_response=init_producer_id.failed,
    ),
    _api(
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        offset_for_leader_epoch.handle,
        _may(_TOPIC, Operation.DESCRIBE),
        heavy=True,
    ),
    _api(
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        describe_configs.handle,
        _may(_CLUSTER, Operation.DESCRIBE_CONFIGS),
        heavy=True,
    ),
    _api(
        AlterConfigsRequest,
        AlterConfigsResponse,
        alter_configs.handle,
        _may(_CLUSTER, Operation.ALTER_CONFIGS),
        error_response=alter_configs.failed,
    ),
    _api(
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        describe_log_dirs.handle,
        _may(_CLUSTER, Operation.DESCRIBE),
        heavy=True,
    ),
    _api(
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        create_partitions.handle,
        _may(_TOPIC, Operation.ALTER),
        error_response=create_partitions.failed,
    ),
    _api(
        ElectLeadersRequest,
        ElectLeadersResponse,
        elect_leaders.handle,
        _may(_CLUSTER, Operation.ALTER),
        error_response=elect_leaders.failed,
        heavy=True,
    ),
    _api(
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        incremental_alter_configs.handle,
        _may(_CLUSTER, Operation.ALTER_CONFIGS),
        error_response=incremental_alter_configs.failed,
    ),
    _api(DescribeQuorumRequest, DescribeQuorumResponse, describe_quorum.handle, _may(_CLUSTER, Operation.DESCRIBE)),
    _api(
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
        update_features.handle,
        _may(_CLUSTER, Operation.ALTER),
        error_response=update_features.failed,
    ),
    _api(DescribeClusterRequest, DescribeClusterResponse, describe_cluster.handle, _may(_CLUSTER, Operation.DESCRIBE)),
    _api(
        DescribeProducersRequest,
        DescribeProducersResponse,
        describe_producers.handle,
        _may(_TOPIC, Operation.READ),
        heavy=True,
    ),
    _api(
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
        get_telemetry_subscriptions.handle,
        None,
    ),
    _api(PushTelemetryRequest, PushTelemetryResponse, push_telemetry.handle, None),
    _api(
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
        list_config_resources.handle,
        _may(_CLUSTER, Operation.DESCRIBE_CONFIGS),
        heavy=True,
    ),
    _api(
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        describe_topic_partitions.handle,
        _may(_TOPIC, Operation.DESCRIBE),
        error_response=describe_topic_partitions.failed,
        heavy=True,
    ),
)

BY_KEY: Final[dict[int, Api]] = {api.key: api for api in APIS}
