"""What brokers ask of a controller on another node: commands as messages, and answers as what the command answers.

Each of them may come twice, since a controller that answers nothing is asked again: a second CreateTopics says that the
topic exists, a second AlterPartition that the partition epoch has passed, a second block of producer ids is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.core.controller.cluster_commands import (
    AlteredPartition,
    AlterPartitions,
    AssignReplicasToDirectories,
    BrokerHeartbeat,
    HeartbeatAnswer,
    ReplicaDirectory,
)
from ottla.core.controller.commands import (
    AllocateProducerIds,
    Command,
    CreatedTopic,
    CreateTopics,
    Outcome,
    ProducerIdBlock,
    RegisterBroker,
)
from ottla.model.errors import ApiError, ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
)
from ottla.wire.messages.assign_replicas_to_dirs import RequestPartitionData as AssignedPartition
from ottla.wire.messages.assign_replicas_to_dirs import RequestTopicData as AssignedTopic
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.schema import Message


class ControllerRequest(NamedTuple):
    """A command as a message. `answer` gives the command's answer, or raises the ApiError that the response holds."""

    message: Message
    response: type[Message]
    answer: Callable[[Any], Any]


def as_request(command: Command[Any]) -> ControllerRequest:
    """The command as a message; TypeError for one that brokers do not send."""
    make = _REQUESTS.get(type(command))
    if make is None:
        raise TypeError(f"{type(command).__name__} is not sent to another node")
    return make(command)


def known_code(code: int) -> ErrorCode:
    """The error code, also where it is one that this version does not know."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def raise_for(code: int, what: str) -> None:
    if code:
        known = known_code(code)
        raise ApiError(known, f"the controller refuses {what}: {known.name} ({code})")


def _register(command: RegisterBroker) -> ControllerRequest:
    def answer(response: BrokerRegistrationResponse) -> int:
        raise_for(response.error_code, f"the registration of broker {command.broker_id}")
        return response.broker_epoch

    message = BrokerRegistrationRequest(
        broker_id=command.broker_id,
        cluster_id=command.cluster_id,
        incarnation_id=command.incarnation_id,
        listeners=[
            Listener(name=item.name, host=item.host, port=item.port, security_protocol=item.security_protocol)
            for item in command.endpoints
        ],
        features=[
            Feature(name=item.name, min_supported_version=item.min_version, max_supported_version=item.max_version)
            for item in command.features
        ],
        rack=command.rack,
        log_dirs=command.log_dirs,
        previous_broker_epoch=command.previous_broker_epoch,
    )
    return ControllerRequest(message, BrokerRegistrationResponse, answer)


def _heartbeat(command: BrokerHeartbeat) -> ControllerRequest:
    def answer(response: BrokerHeartbeatResponse) -> HeartbeatAnswer:
        raise_for(response.error_code, f"the heartbeat of broker {command.broker_id}")
        return HeartbeatAnswer(response.is_caught_up, response.is_fenced, response.should_shut_down)

    message = BrokerHeartbeatRequest(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        current_metadata_offset=command.current_metadata_offset,
        want_fence=command.want_fence,
        want_shut_down=command.want_shut_down,
        offline_log_dirs=command.offline_log_dirs,
    )
    return ControllerRequest(message, BrokerHeartbeatResponse, answer)


def _allocate(command: AllocateProducerIds) -> ControllerRequest:
    def answer(response: AllocateProducerIdsResponse) -> ProducerIdBlock:
        raise_for(response.error_code, "a block of producer ids")
        return ProducerIdBlock(response.producer_id_start, response.producer_id_len)

    message = AllocateProducerIdsRequest(broker_id=command.broker_id, broker_epoch=command.broker_epoch)
    return ControllerRequest(message, AllocateProducerIdsResponse, answer)


def _alter_partitions(command: AlterPartitions) -> ControllerRequest:
    def answer(response: AlterPartitionResponse) -> list[AlteredPartition]:
        raise_for(response.error_code, f"the ISR changes of broker {command.broker_id}")
        answered = {
            (topic.topic_id, item.partition_index): item for topic in response.topics for item in topic.partitions
        }
        return [
            _altered(item.topic_id, item.index, answered.get((item.topic_id, item.index)))
            for item in command.partitions
        ]

    topics: dict[UUID, list[RequestPartitionData]] = {}
    for item in command.partitions:
        data = RequestPartitionData(
            partition_index=item.index,
            leader_epoch=item.leader_epoch,
            new_isr_with_epochs=[
                BrokerState(broker_id=member.broker_id, broker_epoch=member.broker_epoch) for member in item.new_isr
            ],
            leader_recovery_state=item.leader_recovery_state,
            partition_epoch=item.partition_epoch,
        )
        topics.setdefault(item.topic_id, []).append(data)
    message = AlterPartitionRequest(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        topics=[RequestTopicData(topic_id=topic_id, partitions=items) for topic_id, items in topics.items()],
    )
    return ControllerRequest(message, AlterPartitionResponse, answer)


def _altered(topic_id: UUID, index: int, data: PartitionData | None) -> AlteredPartition:
    if data is None:
        return AlteredPartition(topic_id, index, Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller left it out"))
    if data.error_code:
        return AlteredPartition(topic_id, index, Outcome(known_code(data.error_code)))
    return AlteredPartition(
        topic_id,
        index,
        Outcome(),
        leader_id=data.leader_id,
        leader_epoch=data.leader_epoch,
        isr=tuple(data.isr),
        partition_epoch=data.partition_epoch,
        leader_recovery_state=data.leader_recovery_state,
    )


def _assign(command: AssignReplicasToDirectories) -> ControllerRequest:
    def answer(response: AssignReplicasToDirsResponse) -> list[tuple[ReplicaDirectory, Outcome]]:
        raise_for(response.error_code, f"the directories of broker {command.broker_id}")
        answered = {
            (directory.id, topic.topic_id, item.partition_index): item.error_code
            for directory in response.directories
            for topic in directory.topics
            for item in topic.partitions
        }
        missing = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        codes = [answered.get((item.directory_id, item.topic_id, item.index), missing) for item in command.replicas]
        return [(item, Outcome(known_code(code))) for item, code in zip(command.replicas, codes, strict=True)]

    directories: dict[UUID, dict[UUID, list[AssignedPartition]]] = {}
    for item in command.replicas:
        topics = directories.setdefault(item.directory_id, {})
        topics.setdefault(item.topic_id, []).append(AssignedPartition(partition_index=item.index))
    message = AssignReplicasToDirsRequest(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        directories=[
            RequestDirectoryData(
                id=directory_id,
                topics=[AssignedTopic(topic_id=topic_id, partitions=items) for topic_id, items in topics.items()],
            )
            for directory_id, topics in directories.items()
        ],
    )
    return ControllerRequest(message, AssignReplicasToDirsResponse, answer)


def _create_topics(command: CreateTopics) -> ControllerRequest:
    def answer(response: CreateTopicsResponse) -> list[CreatedTopic]:
        answered = {topic.name: topic for topic in response.topics}
        if any(topic.error_code == ErrorCode.NOT_CONTROLLER for topic in response.topics):
            raise_for(ErrorCode.NOT_CONTROLLER, "new topics")
        names = dict.fromkeys(topic.name for topic in command.topics)
        return [_created(name, answered.get(name)) for name in names]

    message = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.num_partitions,
                replication_factor=topic.replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
                    for index, replicas in topic.assignments
                ],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
            )
            for topic in command.topics
        ],
        validate_only=command.validate_only,
    )
    return ControllerRequest(message, CreateTopicsResponse, answer)


def _created(name: str, result: CreatableTopicResult | None) -> CreatedTopic:
    if result is None:
        return CreatedTopic(name, Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller left it out"))
    if result.error_code:
        return CreatedTopic(name, Outcome(known_code(result.error_code), result.error_message))
    return CreatedTopic(name, Outcome(), result.topic_id, result.num_partitions, result.replication_factor)


_REQUESTS: Final[Mapping[type[Command[Any]], Callable[[Any], ControllerRequest]]] = {
    RegisterBroker: _register,
    BrokerHeartbeat: _heartbeat,
    AllocateProducerIds: _allocate,
    AlterPartitions: _alter_partitions,
    AssignReplicasToDirectories: _assign,
    CreateTopics: _create_topics,
}
