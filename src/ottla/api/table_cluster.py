"""The APIs of several brokers: among themselves, and for whoever runs them."""

from __future__ import annotations

from typing import Final

from ottla.api import (
    allocate_producer_ids,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    envelope,
    list_partition_reassignments,
    unregister_broker,
)
from ottla.api.entry import Api, Operation, Permission, Resource, declared_api
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from ottla.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

_CLUSTER = Resource.CLUSTER

CLUSTER_APIS: Final[tuple[Api, ...]] = (
    declared_api(
        AlterPartitionRequest,
        AlterPartitionResponse,
        alter_partition.handle,
        Permission(_CLUSTER, Operation.CLUSTER_ACTION),
        error_response=alter_partition.failed,
        heavy=True,
    ),
    declared_api(
        BrokerRegistrationRequest,
        BrokerRegistrationResponse,
        broker_registration.handle,
        Permission(_CLUSTER, Operation.CLUSTER_ACTION),
        error_response=broker_registration.failed,
    ),
    declared_api(
        BrokerHeartbeatRequest,
        BrokerHeartbeatResponse,
        broker_heartbeat.handle,
        Permission(_CLUSTER, Operation.CLUSTER_ACTION),
        error_response=broker_heartbeat.failed,
    ),
    declared_api(
        AllocateProducerIdsRequest,
        AllocateProducerIdsResponse,
        allocate_producer_ids.handle,
        Permission(_CLUSTER, Operation.CLUSTER_ACTION),
        error_response=allocate_producer_ids.failed,
    ),
    declared_api(
        AssignReplicasToDirsRequest,
        AssignReplicasToDirsResponse,
        assign_replicas_to_dirs.handle,
        Permission(_CLUSTER, Operation.CLUSTER_ACTION),
        error_response=assign_replicas_to_dirs.failed,
        heavy=True,
    ),
    declared_api(
        EnvelopeRequest,
        EnvelopeResponse,
        envelope.handle,
        Permission(_CLUSTER, Operation.CLUSTER_ACTION),
        error_response=envelope.failed,
    ),
    declared_api(
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        alter_partition_reassignments.handle,
        Permission(_CLUSTER, Operation.ALTER),
        error_response=alter_partition_reassignments.failed,
        heavy=True,
        forwarded=True,
    ),
    declared_api(
        ListPartitionReassignmentsRequest,
        ListPartitionReassignmentsResponse,
        list_partition_reassignments.handle,
        Permission(_CLUSTER, Operation.DESCRIBE),
        error_response=list_partition_reassignments.failed,
        heavy=True,
        forwarded=True,
    ),
    declared_api(
        UnregisterBrokerRequest,
        UnregisterBrokerResponse,
        unregister_broker.handle,
        Permission(_CLUSTER, Operation.ALTER),
        error_response=unregister_broker.failed,
        forwarded=True,
    ),
)
