"""Administration of the cluster as a whole: configs, brokers, log directories, the metadata quorum."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.descriptions import (
    ClusterDescription,
    ConfigEntry,
    LogDirectory,
    Quorum,
    QuorumReplica,
    ReplicaSize,
    VoterEndpoint,
)
from ottla.client.errors import broker_error, error_code
from ottla.client.metadata import Broker
from ottla.client.settings import Address
from ottla.model.configs.definition import ConfigSource, ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, TopicPartition
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    ReplicaState,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

EVERY_BROKER: Final = ""
"""The name of the resource that holds the defaults for all brokers."""
_FENCED_SINCE: Final = 2
_SET: Final = 0
_DELETE: Final = 1


class ClusterAdmin:
    """Configs and descriptions; `Admin` adds topics and records."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @property
    def _broker_ms(self) -> int:
        """How long the broker may take: less than we wait, so that its own answer arrives."""
        return max(self._cluster.settings.request_timeout_ms - 1_000, 500)

    # Configs

    def describe_configs(
        self, kind: ResourceType, name: str, keys: Collection[str] | None = None, *, documentation: bool = False
    ) -> list[ConfigEntry]:
        """The configs of a topic or broker, by name; `keys` None means all of them."""

        def attempt() -> list[ConfigEntry]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configuration_keys=None if keys is None else sorted(keys),
                    )
                ],
                include_synonyms=False,
                include_documentation=documentation,
            )
            result = self._for_resource(kind, name).call(request, DescribeConfigsResponse).results[0]
            if result.error_code != ErrorCode.NONE:
                subject = f"configs of {resource_title(kind, name)}"
                raise broker_error(result.error_code, subject, result.error_message)
            return sorted((_config(entry) for entry in result.configs), key=lambda entry: entry.name)

        return self._cluster.retry(attempt)

    def alter_configs(
        self,
        kind: ResourceType,
        name: str,
        *,
        set_to: Mapping[str, str] | None = None,
        unset: Collection[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set and unset keys of a topic, a broker or (with EVERY_BROKER) all brokers; all of it or nothing."""
        settings = (set_to or {}).items()
        changes = [AlterableConfig(name=key, config_operation=_SET, value=value) for key, value in settings]
        changes += [AlterableConfig(name=key, config_operation=_DELETE, value=None) for key in unset]

        def attempt() -> None:
            request = IncrementalAlterConfigsRequest(
                resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=changes)],
                validate_only=validate_only,
            )
            connection = self._for_resource(kind, name) if kind is ResourceType.BROKER else self._cluster.controller()
            result = connection.call(request, IncrementalAlterConfigsResponse).responses[0]
            if result.error_code != ErrorCode.NONE:
                subject = f"cannot change configs of {resource_title(kind, name)}"
                raise broker_error(result.error_code, subject, result.error_message)

        self._cluster.retry(attempt)

    def _for_resource(self, kind: ResourceType, name: str) -> Connection:
        """A broker's own configs are asked of that broker."""
        if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and name.isdecimal():
            return self._cluster.connection(int(name))
        return self._cluster.any_connection()

    # Descriptions

    def describe_cluster(self) -> ClusterDescription:
        """Brokers, controller, cluster id and features."""

        def attempt() -> DescribeClusterResponse:
            connection = self._cluster.any_connection()
            knows_fenced = connection.version_of(DescribeClusterRequest) >= _FENCED_SINCE
            request = DescribeClusterRequest(include_fenced_brokers=knows_fenced)
            answer = connection.call(request, DescribeClusterResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, "cannot describe the cluster", answer.error_message)
            return answer

        answer = self._cluster.retry(attempt)
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=answer.controller_id,
            brokers=_brokers(broker for broker in answer.brokers if not broker.is_fenced),
            features={name: levels[1] for name, levels in sorted(self._cluster.any_connection().features.items())},
            fenced=_brokers(broker for broker in answer.brokers if broker.is_fenced),
        )

    def describe_log_dirs(self, node_ids: Collection[int] | None = None) -> list[LogDirectory]:
        """The log directories of these brokers (None: of all) and what lies in them. All brokers are asked at once."""

        def attempt() -> list[LogDirectory]:
            asked = [broker.node_id for broker in self._cluster.brokers()] if node_ids is None else node_ids
            under_way = []
            for node_id in sorted(asked):
                connection = self._cluster.connection(node_id)
                pending = connection.send(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
                under_way.append((node_id, connection, pending))
            found: list[LogDirectory] = []
            for node_id, connection, pending in under_way:
                results = connection.receive(pending).results
                found += [_log_directory(node_id, result) for result in results]
            return found

        return self._cluster.retry(attempt)

    def describe_quorum(self) -> Quorum:
        """The metadata quorum: leader, voters, observers and how far each is."""
        request = DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=[RequestPartitionData(partition_index=0)])]
        )

        def attempt() -> Quorum:
            answer = self._cluster.any_connection().call(request, DescribeQuorumResponse)
            code, message = answer.error_code, answer.error_message
            if code == ErrorCode.NONE:
                partition = answer.topics[0].partitions[0]
                code, message = partition.error_code, partition.error_message
            if code != ErrorCode.NONE:
                raise broker_error(code, "cannot describe the metadata quorum", message)
            return Quorum(
                leader_id=partition.leader_id,
                leader_epoch=partition.leader_epoch,
                high_watermark=partition.high_watermark,
                voters=tuple(_quorum_replica(replica) for replica in partition.current_voters),
                observers=tuple(_quorum_replica(replica) for replica in partition.observers),
                endpoints={node.node_id: tuple(map(_endpoint, node.listeners)) for node in answer.nodes},
            )

        return self._cluster.retry(attempt)


def resource_title(kind: ResourceType, name: str) -> str:
    """How a config resource is named in a sentence."""
    if kind is ResourceType.BROKER:
        return f"broker {name}" if name else "all brokers"
    return f"{kind.name.lower().replace('_', ' ')} {name!r}"


def _config(entry: DescribeConfigsResourceResult) -> ConfigEntry:
    try:
        source = ConfigSource(entry.config_source)
    except ValueError:
        source = ConfigSource.UNKNOWN
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=source,
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        documentation=entry.documentation,
    )


def _log_directory(node_id: int, result: DescribeLogDirsResult) -> LogDirectory:
    replicas = (
        ReplicaSize(
            partition=TopicPartition(topic.name, partition.partition_index),
            size_bytes=partition.partition_size,
            offset_lag=partition.offset_lag,
            future=partition.is_future_key,
        )
        for topic in result.topics
        for partition in topic.partitions
    )
    return LogDirectory(
        node_id=node_id,
        path=result.log_dir,
        error=None if result.error_code == ErrorCode.NONE else error_code(result.error_code).name,
        total_bytes=result.total_bytes,
        usable_bytes=result.usable_bytes,
        replicas=tuple(sorted(replicas, key=lambda replica: replica.partition)),
    )


def _quorum_replica(replica: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        node_id=replica.replica_id,
        log_end_offset=replica.log_end_offset,
        last_fetch_ms=replica.last_fetch_timestamp,
        last_caught_up_ms=replica.last_caught_up_timestamp,
        directory_id=replica.replica_directory_id,
    )


def _endpoint(listener: Listener) -> VoterEndpoint:
    return VoterEndpoint(listener.name, Address(listener.host, listener.port))


def _brokers(described: Iterable[DescribeClusterBroker]) -> tuple[Broker, ...]:
    return tuple(
        sorted(Broker(broker.broker_id, Address(broker.host, broker.port), broker.rack) for broker in described)
    )
