"""The controller's records as bytes, and back: Kafka's metadata records in KRaft's frame.

A record's value is `frame version | type | version | fields`, the first three as unsigned varints. Kafka's own
`kafka-dump-log --cluster-metadata-decoder` reads what is written here. Control records (a new leader, the edges of a
snapshot) have no frame; their key carries their type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from typing import Any, Final

from ottla.core.controller import records as core
from ottla.model.configs.definition import ResourceType
from ottla.model.errors import ApiError, CorruptLogError, MalformedMessageError
from ottla.runtime.partition_change_codec import (
    PARTITION_CHANGE,
    decode_partition_change,
    encode_partition_change,
)
from ottla.wire import records as wire_records
from ottla.wire import varint
from ottla.wire.batch import CONTROL_BIT
from ottla.wire.messages import metadata_records as wire
from ottla.wire.schema import Message, decode, encode

FRAME_VERSION: Final = 1
LEADER_CHANGE: Final = 2
SNAPSHOT_HEADER: Final = 3
SNAPSHOT_FOOTER: Final = 4
KRAFT_VERSION: Final = 5
KRAFT_VOTERS: Final = 6

_CONTROL_KEY: Final = Struct(">hh")
_UNCHANGED: Final = -1
_YES_NO: Final = {None: 0, False: -1, True: 1}
_OUT_OF_ZOOKEEPER: Final = (0, 3)
_NOT_HERE: Final = {
    6: "access control lists",
    10: "delegation tokens",
    11: "SCRAM credentials",
    14: "quotas",
    18: "access control lists",
    19: "access control lists",
    22: "SCRAM credentials",
    26: "delegation tokens",
}
"""What Apache Kafka keeps in records that mean something which nobody here would see to."""
_NO_YES: Final = {0: None, -1: False, 1: True}


def encode_record(record: core.Record) -> bytes:
    """The value of a record in the metadata log."""
    if isinstance(record, core.PartitionChangeRecord):
        value = encode_partition_change(record)
        if value is not None:
            return value
    version, to_wire = _TO_WIRE[type(record)]
    message = to_wire(record)
    return encode(message, version, _FRAMES[type(message), version])


def decode_record(value: bytes) -> core.Record:
    """The record of a value; CorruptLogError for one that this version does not know."""
    if value.startswith(PARTITION_CHANGE):
        change = decode_partition_change(value)
        if change is not None:
            return change
    try:
        frame, position = varint.read_unsigned(value, 0)
        kind, position = varint.read_unsigned(value, position)
        version, position = varint.read_unsigned(value, position)
        if frame != FRAME_VERSION or kind not in _FROM_WIRE:
            raise CorruptLogError(_unknown(frame, kind))
        message = decode(wire.RECORD_TYPES[kind], value, version, position)
        return _FROM_WIRE[kind](message)
    except (IndexError, KeyError, ValueError, MalformedMessageError, ApiError) as error:
        raise CorruptLogError(f"metadata record of {len(value)} bytes cannot be read: {error}") from error


def _unknown(frame: int, kind: int) -> str:
    if frame == FRAME_VERSION and kind in _NOT_HERE:
        return (
            f"the metadata of this cluster has, or had, {_NOT_HERE[kind]}, which this version of Ottla does not have: "
            "it would not enforce them, so it does not start with this directory"
        )
    return f"metadata record of frame version {frame} and type {kind} is not known here"


def build_batch(records: Iterable[core.Record], *, base_offset: int, leader_epoch: int, now_ms: int) -> bytearray:
    """A record batch with these records: they take effect together or not at all."""
    return wire_records.build_batch(
        [
            wire_records.Record(offset, now_ms, None, encode_record(record))
            for offset, record in enumerate(records, base_offset)
        ],
        leader_epoch=leader_epoch,
    )


def build_control_batch(kind: int, message: Message, *, base_offset: int, leader_epoch: int, now_ms: int) -> bytearray:
    """A record batch with one control record."""
    return build_control_records([(kind, message)], base_offset=base_offset, leader_epoch=leader_epoch, now_ms=now_ms)


def build_control_records(
    messages: Sequence[tuple[int, Message]], *, base_offset: int, leader_epoch: int, now_ms: int
) -> bytearray:
    """A record batch with control records, each with its kind."""
    records = [
        wire_records.Record(offset, now_ms, _CONTROL_KEY.pack(0, kind), encode(message, 0))
        for offset, (kind, message) in enumerate(messages, base_offset)
    ]
    return wire_records.build_batch(records, leader_epoch=leader_epoch, attributes=CONTROL_BIT)


def leader_change(leader_id: int, voters: Sequence[int], granting: Sequence[int]) -> wire.LeaderChangeMessage:
    """The control record that a new leader begins its epoch with: who votes, and who has voted for it."""
    return wire.LeaderChangeMessage(
        leader_id=leader_id,
        voters=[wire.Voter(voter_id=voter) for voter in voters],
        granting_voters=[wire.Voter(voter_id=voter) for voter in granting],
    )


def control_kind(key: bytes | None) -> int:
    """The type of a control record; CorruptLogError for a key that is none."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise CorruptLogError("a control record of the metadata log has no type")
    return int(_CONTROL_KEY.unpack_from(key)[1])


def _register_broker(record: core.RegisterBrokerRecord) -> Message:
    return wire.RegisterBrokerRecord(
        broker_id=record.broker_id,
        incarnation_id=record.incarnation_id,
        broker_epoch=record.broker_epoch,
        end_points=[
            wire.BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in record.end_points
        ],
        features=[
            wire.BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in record.features
        ],
        rack=record.rack,
        fenced=record.fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=record.log_dirs,
    )


def _read_register_broker(message: wire.RegisterBrokerRecord) -> core.Record:
    return core.RegisterBrokerRecord(
        broker_id=message.broker_id,
        incarnation_id=message.incarnation_id,
        broker_epoch=message.broker_epoch,
        end_points=tuple(
            core.BrokerEndpoint(point.name, point.host, point.port, point.security_protocol)
            for point in message.end_points
        ),
        features=tuple(
            core.SupportedFeature(feature.name, feature.min_supported_version, feature.max_supported_version)
            for feature in message.features
        ),
        rack=message.rack,
        fenced=message.fenced,
        in_controlled_shutdown=message.in_controlled_shutdown,
        log_dirs=tuple(message.log_dirs),
    )


def _change_broker(record: core.BrokerRegistrationChangeRecord) -> Message:
    return wire.BrokerRegistrationChangeRecord(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        fenced=_YES_NO[record.fenced],
        in_controlled_shutdown=_YES_NO[record.in_controlled_shutdown],
        log_dirs=record.log_dirs or [],
    )


def _read_change_broker(message: wire.BrokerRegistrationChangeRecord) -> core.Record:
    return core.BrokerRegistrationChangeRecord(
        broker_id=message.broker_id,
        broker_epoch=message.broker_epoch,
        fenced=_NO_YES[message.fenced],
        in_controlled_shutdown=_NO_YES[message.in_controlled_shutdown],
        log_dirs=tuple(message.log_dirs) or None,
    )


def _partition(record: core.PartitionRecord) -> Message:
    return wire.PartitionRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        replicas=record.replicas,
        isr=record.isr,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        leader=record.leader,
        leader_recovery_state=record.leader_recovery_state,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        directories=record.directories,
        eligible_leader_replicas=record.eligible_leader_replicas or None,
        last_known_elr=record.last_known_elr or None,
    )


def _read_partition(message: wire.PartitionRecord) -> core.Record:
    return core.PartitionRecord(
        partition_id=message.partition_id,
        topic_id=message.topic_id,
        replicas=tuple(message.replicas),
        isr=tuple(message.isr),
        leader=message.leader,
        leader_epoch=message.leader_epoch,
        partition_epoch=message.partition_epoch,
        directories=tuple(message.directories),
        removing_replicas=tuple(message.removing_replicas),
        adding_replicas=tuple(message.adding_replicas),
        eligible_leader_replicas=tuple(message.eligible_leader_replicas or ()),
        last_known_elr=tuple(message.last_known_elr or ()),
        leader_recovery_state=message.leader_recovery_state,
    )


def _change_partition(record: core.PartitionChangeRecord) -> Message:
    return wire.PartitionChangeRecord(
        partition_id=record.partition_id,
        topic_id=record.topic_id,
        isr=record.isr,
        leader=wire.LEADER_UNCHANGED if record.leader is None else record.leader,
        replicas=record.replicas,
        removing_replicas=record.removing_replicas,
        adding_replicas=record.adding_replicas,
        leader_recovery_state=_UNCHANGED if record.leader_recovery_state is None else record.leader_recovery_state,
        directories=record.directories,
        eligible_leader_replicas=record.eligible_leader_replicas,
        last_known_elr=record.last_known_elr,
    )


def _read_change_partition(message: wire.PartitionChangeRecord) -> core.Record:
    def or_none(values: Sequence[Any] | None) -> tuple[Any, ...] | None:
        return None if values is None else tuple(values)

    return core.PartitionChangeRecord(
        partition_id=message.partition_id,
        topic_id=message.topic_id,
        isr=or_none(message.isr),
        leader=None if message.leader == wire.LEADER_UNCHANGED else message.leader,
        replicas=or_none(message.replicas),
        removing_replicas=or_none(message.removing_replicas),
        adding_replicas=or_none(message.adding_replicas),
        directories=or_none(message.directories),
        eligible_leader_replicas=or_none(message.eligible_leader_replicas),
        last_known_elr=or_none(message.last_known_elr),
        leader_recovery_state=None if message.leader_recovery_state == _UNCHANGED else message.leader_recovery_state,
    )


def _read_zk_migration(message: wire.ZkMigrationStateRecord) -> core.Record:
    if message.zk_migration_state not in _OUT_OF_ZOOKEEPER:
        raise CorruptLogError("this cluster's migration from ZooKeeper has not ended: end it with Apache Kafka first")
    return core.NoOpRecord()


def _config(record: core.ConfigRecord) -> Message:
    return wire.ConfigRecord(
        resource_type=record.resource_type, resource_name=record.resource_name, name=record.name, value=record.value
    )


def _read_config(message: wire.ConfigRecord) -> core.Record:
    return core.ConfigRecord(
        resource_type=ResourceType(message.resource_type),
        resource_name=message.resource_name,
        name=message.name,
        value=message.value,
    )


_TO_WIRE: Final[Mapping[type[Any], tuple[int, Callable[[Any], Message]]]] = {
    core.RegisterBrokerRecord: (3, _register_broker),
    core.UnregisterBrokerRecord: (
        0,
        lambda record: wire.UnregisterBrokerRecord(broker_id=record.broker_id, broker_epoch=record.broker_epoch),
    ),
    core.BrokerRegistrationChangeRecord: (2, _change_broker),
    core.TopicRecord: (0, lambda record: wire.TopicRecord(name=record.name, topic_id=record.topic_id)),
    core.PartitionRecord: (2, _partition),
    core.PartitionChangeRecord: (2, _change_partition),
    core.RemoveTopicRecord: (0, lambda record: wire.RemoveTopicRecord(topic_id=record.topic_id)),
    core.ConfigRecord: (0, _config),
    core.ProducerIdsRecord: (
        0,
        lambda record: wire.ProducerIdsRecord(
            broker_id=record.broker_id, broker_epoch=record.broker_epoch, next_producer_id=record.next_producer_id
        ),
    ),
    core.FeatureLevelRecord: (
        0,
        lambda record: wire.FeatureLevelRecord(name=record.name, feature_level=record.feature_level),
    ),
    core.NoOpRecord: (0, lambda record: wire.NoOpRecord()),
    core.ClearElrRecord: (0, lambda record: wire.ClearElrRecord(topic_name=record.topic_name)),
    core.BeginTransactionRecord: (0, lambda record: wire.BeginTransactionRecord(name=record.name)),
    core.EndTransactionRecord: (0, lambda record: wire.EndTransactionRecord()),
    core.AbortTransactionRecord: (0, lambda record: wire.AbortTransactionRecord(reason=record.reason)),
}
"""For each record of the controller the version that is written, and how."""

_FROM_WIRE: Final[Mapping[int, Callable[[Any], core.Record]]] = {
    0: _read_register_broker,
    1: lambda message: core.UnregisterBrokerRecord(broker_id=message.broker_id, broker_epoch=message.broker_epoch),
    2: lambda message: core.TopicRecord(name=message.name, topic_id=message.topic_id),
    3: _read_partition,
    4: _read_config,
    5: _read_change_partition,
    9: lambda message: core.RemoveTopicRecord(topic_id=message.topic_id),
    12: lambda message: core.FeatureLevelRecord(name=message.name, feature_level=message.feature_level),
    15: lambda message: core.ProducerIdsRecord(
        broker_id=message.broker_id, broker_epoch=message.broker_epoch, next_producer_id=message.next_producer_id
    ),
    17: _read_change_broker,
    20: lambda message: core.NoOpRecord(),
    21: _read_zk_migration,
    23: lambda message: core.BeginTransactionRecord(name=message.name),
    24: lambda message: core.EndTransactionRecord(),
    25: lambda message: core.AbortTransactionRecord(reason=message.reason),
    # A controller of Apache Kafka registers, and does so again whenever it starts; here they know one another by votes.
    27: lambda message: core.NoOpRecord(),
    28: lambda message: core.ClearElrRecord(topic_name=message.topic_name),
}
"""For each type on the wire how it is read."""

_FRAMES: Final = {
    (message_type, version): varint.unsigned(FRAME_VERSION) + varint.unsigned(kind) + varint.unsigned(version)
    for kind, message_type in wire.RECORD_TYPES.items()
    for version in range(5)
}
