"""The one place that says which APIs there are.

Dispatch, ApiVersions, permissions and docs/protocol-support.md are all read off this table. An API that is not in it
is not served: a client that asks for it anyway loses its connection, as with Kafka. The APIs of the two coordinators
are written down in `table_groups` and `table_transactions`, those of several brokers in `table_cluster`.
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
    list_config_resources,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    update_features,
)
from ottla.api.entry import Api, Operation, Permission, Resource, declared_api
from ottla.api.table_cluster import CLUSTER_APIS
from ottla.api.table_groups import GROUP_APIS
from ottla.api.table_quorum import QUORUM_APIS
from ottla.api.table_transactions import TRANSACTION_APIS
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
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_CLUSTER, _TOPIC = Resource.CLUSTER, Resource.TOPIC

APIS: Final[tuple[Api, ...]] = (
    Api(
        key=0,
        name="Produce",
        min_version=produce_codec.VERSION_MIN,
        max_version=produce_codec.VERSION_MAX,
        handler=produce.handle,
        permission=Permission(_TOPIC, Operation.WRITE),
        hot=True,
    ),
    Api(
        key=1,
        name="Fetch",
        min_version=fetch_types.VERSION_MIN,
        max_version=fetch_types.VERSION_MAX,
        handler=fetch.handle,
        permission=Permission(_TOPIC, Operation.READ),
        hot=True,
    ),
    declared_api(
        ListOffsetsRequest, ListOffsetsResponse, list_offsets.handle, Permission(_TOPIC, Operation.DESCRIBE), heavy=True
    ),
    declared_api(
        MetadataRequest,
        MetadataResponse,
        metadata.handle,
        Permission(_TOPIC, Operation.DESCRIBE),
        error_response=metadata.failed,
        heavy=True,
    ),
    declared_api(ApiVersionsRequest, ApiVersionsResponse, api_versions.handle, None),
    declared_api(
        CreateTopicsRequest,
        CreateTopicsResponse,
        create_topics.handle,
        Permission(_CLUSTER, Operation.CREATE),
        error_response=create_topics.failed,
        heavy=True,
        forwarded=True,
    ),
    declared_api(
        DeleteTopicsRequest,
        DeleteTopicsResponse,
        delete_topics.handle,
        Permission(_TOPIC, Operation.DELETE),
        error_response=delete_topics.failed,
        heavy=True,
        forwarded=True,
    ),
    declared_api(
        DeleteRecordsRequest,
        DeleteRecordsResponse,
        delete_records.handle,
        Permission(_TOPIC, Operation.DELETE),
        heavy=True,
    ),
    declared_api(
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        offset_for_leader_epoch.handle,
        Permission(_TOPIC, Operation.DESCRIBE),
        heavy=True,
    ),
    declared_api(
        DescribeConfigsRequest,
        DescribeConfigsResponse,
        describe_configs.handle,
        Permission(_CLUSTER, Operation.DESCRIBE_CONFIGS),
        heavy=True,
    ),
    declared_api(
        AlterConfigsRequest,
        AlterConfigsResponse,
        alter_configs.handle,
        Permission(_CLUSTER, Operation.ALTER_CONFIGS),
        error_response=alter_configs.failed,
        forwarded=True,
    ),
    declared_api(
        DescribeLogDirsRequest,
        DescribeLogDirsResponse,
        describe_log_dirs.handle,
        Permission(_CLUSTER, Operation.DESCRIBE),
        heavy=True,
    ),
    declared_api(
        CreatePartitionsRequest,
        CreatePartitionsResponse,
        create_partitions.handle,
        Permission(_TOPIC, Operation.ALTER),
        error_response=create_partitions.failed,
        forwarded=True,
    ),
    declared_api(
        ElectLeadersRequest,
        ElectLeadersResponse,
        elect_leaders.handle,
        Permission(_CLUSTER, Operation.ALTER),
        error_response=elect_leaders.failed,
        heavy=True,
        forwarded=True,
    ),
    declared_api(
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        incremental_alter_configs.handle,
        Permission(_CLUSTER, Operation.ALTER_CONFIGS),
        error_response=incremental_alter_configs.failed,
        forwarded=True,
    ),
    declared_api(
        DescribeQuorumRequest,
        DescribeQuorumResponse,
        describe_quorum.handle,
        Permission(_CLUSTER, Operation.DESCRIBE),
        error_response=describe_quorum.failed,
        forwarded=True,
    ),
    declared_api(
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
        update_features.handle,
        Permission(_CLUSTER, Operation.ALTER),
        error_response=update_features.failed,
        forwarded=True,
    ),
    declared_api(
        DescribeClusterRequest,
        DescribeClusterResponse,
        describe_cluster.handle,
        Permission(_CLUSTER, Operation.DESCRIBE),
    ),
    declared_api(
        DescribeProducersRequest,
        DescribeProducersResponse,
        describe_producers.handle,
        Permission(_TOPIC, Operation.READ),
        heavy=True,
    ),
    declared_api(
        GetTelemetrySubscriptionsRequest,
        GetTelemetrySubscriptionsResponse,
        get_telemetry_subscriptions.handle,
        None,
    ),
    declared_api(PushTelemetryRequest, PushTelemetryResponse, push_telemetry.handle, None),
    declared_api(
        ListConfigResourcesRequest,
        ListConfigResourcesResponse,
        list_config_resources.handle,
        Permission(_CLUSTER, Operation.DESCRIBE_CONFIGS),
        heavy=True,
    ),
    declared_api(
        DescribeTopicPartitionsRequest,
        DescribeTopicPartitionsResponse,
        describe_topic_partitions.handle,
        Permission(_TOPIC, Operation.DESCRIBE),
        error_response=describe_topic_partitions.failed,
        heavy=True,
    ),
    *CLUSTER_APIS,
    *GROUP_APIS,
    *QUORUM_APIS,
    *TRANSACTION_APIS,
)

BY_KEY: Final[dict[int, Api]] = {api.key: api for api in APIS}
