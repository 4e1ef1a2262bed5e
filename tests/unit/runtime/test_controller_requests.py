"""What a broker asks of a controller on another node is what it would have asked of its own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.core.controller.cluster_commands import (
    AlteredPartition,
    AlterPartitions,
    AssignReplicasToDirectories,
    BrokerHeartbeat,
    FenceBroker,
    HeartbeatAnswer,
    InSyncReplica,
    PartitionToAlter,
    ReplicaDirectory,
)
from ottla.core.controller.commands import (
    AllocateProducerIds,
    Command,
    CreatedTopic,
    CreateTopics,
    NewTopic,
    Outcome,
    ProducerIdBlock,
    RegisterBroker,
)
from ottla.core.controller.records import BrokerEndpoint, SupportedFeature
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.controller_requests import as_request
from ottla.wire.messages import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_topics,
)
from ottla.wire.schema import Message, decode, encode

A, B, DIRECTORY = UUID(int=10), UUID(int=11), UUID(int=99)

REGISTER = RegisterBroker(
    broker_id=3,
    incarnation_id=UUID(int=5),
    cluster_id="c",
    endpoints=[BrokerEndpoint("PLAINTEXT", "h", 9092, 0)],
    features=[SupportedFeature("metadata.version", 1, 25)],
    rack="r",
    log_dirs=[DIRECTORY],
    previous_broker_epoch=41,
)
HEARTBEAT = BrokerHeartbeat(
    broker_id=3,
    broker_epoch=42,
    current_metadata_offset=7,
    want_fence=False,
    want_shut_down=True,
    offline_log_dirs=[DIRECTORY],
)
ALTER = AlterPartitions(
    3,
    42,
    [
        PartitionToAlter(A, 0, 5, [InSyncReplica(3, 42), InSyncReplica(4, 17)], 9),
        PartitionToAlter(B, 1, 6, [InSyncReplica(3, 42)], 10),
        PartitionToAlter(A, 2, 7, [InSyncReplica(3, 42)], 11),
    ],
)
ASSIGN = AssignReplicasToDirectories(3, 42, [ReplicaDirectory(A, 0, DIRECTORY), ReplicaDirectory(A, 1, DIRECTORY)])
CREATE = CreateTopics([NewTopic("t", 3, 2, (), [("retention.ms", "5")]), NewTopic("u", assignments=[(0, [1, 2])])])


def sent(command: Command[Any]) -> Message:
    """The request as the controller reads it, in the newest version."""
    message = as_request(command).message
    schema = type(message).__schema__
    assert schema is not None
    version = schema.versions[1]
    return decode(type(message), encode(message, version), version)


def answered(command: Command[Any], response: Message) -> Any:
    request = as_request(command)
    assert isinstance(response, request.response)
    return request.answer(response)


def test_what_is_sent() -> None:
    registration = sent(REGISTER)
    assert isinstance(registration, broker_registration.BrokerRegistrationRequest)
    assert (registration.broker_id, registration.cluster_id, registration.rack) == (3, "c", "r")
    assert (registration.incarnation_id, registration.log_dirs) == (UUID(int=5), [DIRECTORY])
    assert registration.previous_broker_epoch == 41
    assert [(item.name, item.host, item.port) for item in registration.listeners] == [("PLAINTEXT", "h", 9092)]
    assert [(item.name, item.max_supported_version) for item in registration.features] == [("metadata.version", 25)]

    heartbeat = sent(HEARTBEAT)
    assert isinstance(heartbeat, broker_heartbeat.BrokerHeartbeatRequest)
    assert (heartbeat.broker_epoch, heartbeat.current_metadata_offset) == (42, 7)
    assert (heartbeat.want_fence, heartbeat.want_shut_down, heartbeat.offline_log_dirs) == (False, True, [DIRECTORY])

    alter = sent(ALTER)
    assert isinstance(alter, alter_partition.AlterPartitionRequest)
    assert [(topic.topic_id, [item.partition_index for item in topic.partitions]) for topic in alter.topics] == [
        (A, [0, 2]),
        (B, [1]),
    ]
    first = alter.topics[0].partitions[0]
    assert [(state.broker_id, state.broker_epoch) for state in first.new_isr_with_epochs] == [(3, 42), (4, 17)]
    assert (first.leader_epoch, first.partition_epoch) == (5, 9)

    assign = sent(ASSIGN)
    assert isinstance(assign, assign_replicas_to_dirs.AssignReplicasToDirsRequest)
    ((directory_id, topics),) = [(item.id, item.topics) for item in assign.directories]
    assert (directory_id, [item.partition_index for item in topics[0].partitions]) == (DIRECTORY, [0, 1])

    create = sent(CREATE)
    assert isinstance(create, create_topics.CreateTopicsRequest)
    assert [(topic.name, topic.num_partitions, topic.replication_factor) for topic in create.topics] == [
        ("t", 3, 2),
        ("u", -1, -1),
    ]
    assert [(item.partition_index, item.broker_ids) for item in create.topics[1].assignments] == [(0, [1, 2])]

    assert sent(AllocateProducerIds(3, 42)) == allocate_producer_ids.AllocateProducerIdsRequest(
        broker_id=3, broker_epoch=42
    )


def test_what_is_answered() -> None:
    assert answered(REGISTER, broker_registration.BrokerRegistrationResponse(broker_epoch=50)) == 50
    heartbeat = broker_heartbeat.BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False, should_shut_down=True)
    assert answered(HEARTBEAT, heartbeat) == HeartbeatAnswer(True, False, True)
    block = allocate_producer_ids.AllocateProducerIdsResponse(producer_id_start=1000, producer_id_len=500)
    assert answered(AllocateProducerIds(3, 42), block) == ProducerIdBlock(1000, 500)
    created = create_topics.CreateTopicsResponse(
        topics=[
            create_topics.CreatableTopicResult(name="u", error_code=36, error_message="it is there"),
            create_topics.CreatableTopicResult(name="t", topic_id=A, num_partitions=3, replication_factor=2),
        ]
    )
    assert answered(CREATE, created) == [
        CreatedTopic("t", Outcome(), A, 3, 2),
        CreatedTopic("u", Outcome(ErrorCode.TOPIC_ALREADY_EXISTS, "it is there")),
    ]


def test_answers_per_partition_keep_the_order_of_the_question() -> None:
    done = alter_partition.PartitionData(partition_index=0, leader_id=3, leader_epoch=5, isr=[3, 4], partition_epoch=10)
    refused = alter_partition.PartitionData(partition_index=2, error_code=ErrorCode.INVALID_UPDATE_VERSION)
    response = alter_partition.AlterPartitionResponse(
        topics=[alter_partition.TopicData(topic_id=A, partitions=[refused, done])]
    )
    first, second, third = answered(ALTER, response)
    assert first == AlteredPartition(A, 0, Outcome(), 3, 5, (3, 4), 10)
    assert (second.topic_id, second.index, second.outcome.code) == (B, 1, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert third == AlteredPartition(A, 2, Outcome(ErrorCode.INVALID_UPDATE_VERSION))

    parts = [assign_replicas_to_dirs.PartitionData(partition_index=1)]
    topics = [assign_replicas_to_dirs.TopicData(topic_id=A, partitions=parts)]
    assigned = assign_replicas_to_dirs.AssignReplicasToDirsResponse(
        directories=[assign_replicas_to_dirs.DirectoryData(id=DIRECTORY, topics=topics)]
    )
    assert [outcome.code for _, outcome in answered(ASSIGN, assigned)] == [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NONE,
    ]


@pytest.mark.parametrize(
    ("command", "response"),
    [
        (REGISTER, broker_registration.BrokerRegistrationResponse(error_code=ErrorCode.NOT_CONTROLLER)),
        (HEARTBEAT, broker_heartbeat.BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)),
        (ALTER, alter_partition.AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)),
        (ASSIGN, assign_replicas_to_dirs.AssignReplicasToDirsResponse(error_code=ErrorCode.NOT_CONTROLLER)),
        (
            AllocateProducerIds(1, 1),
            allocate_producer_ids.AllocateProducerIdsResponse(error_code=ErrorCode.NOT_CONTROLLER),
        ),
        (
            CREATE,
            create_topics.CreateTopicsResponse(
                topics=[create_topics.CreatableTopicResult(name="t", error_code=ErrorCode.NOT_CONTROLLER)]
            ),
        ),
    ],
)
def test_who_is_not_the_controller_is_recognised(command: Command[Any], response: Message) -> None:
    with pytest.raises(ApiError) as caught:
        answered(command, response)
    assert caught.value.code is ErrorCode.NOT_CONTROLLER


def test_what_brokers_do_not_send() -> None:
    with pytest.raises(TypeError):
        as_request(FenceBroker(1, 2))
