"""What stands in the metadata log and its snapshots.

Metadata records are Kafka's own, so that its tools read our log; the api key of such a class is the type of the
record, not the key of a request. Control records have no key: the record's own key carries their type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from ottla.model.ids import ZERO_UUID
from ottla.wire.schema import Bool, Int8, Int16, Int32, Int64, Message, String, Uint16, Uuid, since, tag

LEADER_UNCHANGED: Final = -2
"""The leader in a PartitionChangeRecord that leaves it as it is."""


class BrokerEndpoint(Message):
    """A listener of a broker, as the other nodes and the clients reach it."""

    name: String
    host: String
    port: Uint16
    security_protocol: Int16


class BrokerFeature(Message):
    """The levels of a feature that a broker can work with."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterBrokerRecord(Message, api_key=0, versions=(0, 4), flexible_since=0):
    """A broker that started; its epoch is the offset of this record."""

    broker_id: Int32
    is_migrating_zk_broker: Annotated[Bool, since(2)] = False
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: Sequence[BrokerEndpoint]
    features: Sequence[BrokerFeature]
    rack: String | None
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, since(1)] = False
    log_dirs: Annotated[Sequence[Uuid], since(3), tag(0)] = []
    cordoned_log_dirs: Annotated[Sequence[Uuid] | None, since(4), tag(1)] = None


class UnregisterBrokerRecord(Message, api_key=1, versions=(0, 0), flexible_since=0):
    """A broker that will not come back."""

    broker_id: Int32
    broker_epoch: Int64


class TopicRecord(Message, api_key=2, versions=(0, 0), flexible_since=0):
    """A new topic."""

    name: String
    topic_id: Uuid


class PartitionRecord(Message, api_key=3, versions=(0, 2), flexible_since=0):
    """A partition in full: new, or as a snapshot has it."""

    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: Sequence[Int32]
    isr: Sequence[Int32]
    removing_replicas: Sequence[Int32] = []
    adding_replicas: Sequence[Int32] = []
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, tag(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[Sequence[Uuid], since(1)] = []
    eligible_leader_replicas: Annotated[Sequence[Int32] | None, since(2), tag(1)] = None
    last_known_elr: Annotated[Sequence[Int32] | None, since(2), tag(2)] = None


class ConfigRecord(Message, api_key=4, versions=(0, 0), flexible_since=0):
    """A config of a resource; null removes it."""

    resource_type: Int8
    resource_name: String
    name: String
    value: String | None


class PartitionChangeRecord(Message, api_key=5, versions=(0, 2), flexible_since=0):
    """What changes in a partition; whatever is null stays. The partition epoch grows by one with each."""

    partition_id: Int32 = -1
    topic_id: Uuid
    isr: Annotated[Sequence[Int32] | None, tag(0)] = None
    leader: Annotated[Int32, tag(1)] = LEADER_UNCHANGED
    replicas: Annotated[Sequence[Int32] | None, tag(2)] = None
    removing_replicas: Annotated[Sequence[Int32] | None, tag(3)] = None
    adding_replicas: Annotated[Sequence[Int32] | None, tag(4)] = None
    leader_recovery_state: Annotated[Int8, tag(5)] = -1
    directories: Annotated[Sequence[Uuid] | None, since(1), tag(8)] = None
    eligible_leader_replicas: Annotated[Sequence[Int32] | None, since(2), tag(6)] = None
    last_known_elr: Annotated[Sequence[Int32] | None, since(2), tag(7)] = None


class FenceBrokerRecord(Message, api_key=7, versions=(0, 0), flexible_since=0):
    """A broker that may lead nothing. BrokerRegistrationChangeRecord took its place."""

    id: Int32
    epoch: Int64


class UnfenceBrokerRecord(Message, api_key=8, versions=(0, 0), flexible_since=0):
    """A broker that may lead again. BrokerRegistrationChangeRecord took its place."""

    id: Int32
    epoch: Int64


class RemoveTopicRecord(Message, api_key=9, versions=(0, 0), flexible_since=0):
    """A topic that is gone, with its partitions; its configs need records of their own."""

    topic_id: Uuid


class FeatureLevelRecord(Message, api_key=12, versions=(0, 0), flexible_since=0):
    """The level of a feature from here on; 0 removes it. metadata.version is one of them."""

    name: String
    feature_level: Int16


class ProducerIdsRecord(Message, api_key=15, versions=(0, 0), flexible_since=0):
    """A block of producer ids went to a broker; the next block begins at `next_producer_id`."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64


class BrokerRegistrationChangeRecord(Message, api_key=17, versions=(0, 3), flexible_since=0):
    """What changes in a broker: -1 and 1 for no and yes, 0 and an empty list leave it as it is."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Annotated[Int8, tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, since(1), tag(1)] = 0
    log_dirs: Annotated[Sequence[Uuid], since(2), tag(2)] = []
    cordoned_log_dirs: Annotated[Sequence[Uuid] | None, since(3), tag(3)] = None


class NoOpRecord(Message, api_key=20, versions=(0, 0), flexible_since=0):
    """Nothing; keeps the log moving, so that observers see how far it is."""


class ZkMigrationStateRecord(Message, api_key=21, versions=(0, 0), flexible_since=0):
    """How far a cluster has left ZooKeeper behind."""

    zk_migration_state: Int8


class BeginTransactionRecord(Message, api_key=23, versions=(0, 0), flexible_since=0):
    """The records from here to the end of the transaction count together or not at all."""

    name: Annotated[String | None, tag(0)] = None


class EndTransactionRecord(Message, api_key=24, versions=(0, 0), flexible_since=0):
    """The transaction's records count."""


class AbortTransactionRecord(Message, api_key=25, versions=(0, 0), flexible_since=0):
    """The transaction's records do not count."""

    reason: Annotated[String | None, tag(0)] = None


class ControllerEndpoint(Message):
    """A listener of a controller."""

    name: String
    host: String
    port: Uint16
    security_protocol: Int16


class ControllerFeature(Message):
    """The levels of a feature that a controller can work with."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class RegisterControllerRecord(Message, api_key=27, versions=(0, 0), flexible_since=0):
    """A controller that started."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool = False
    end_points: Sequence[ControllerEndpoint]
    features: Sequence[ControllerFeature]


class ClearElrRecord(Message, api_key=28, versions=(0, 0), flexible_since=0):
    """Forgets the eligible leaders of a topic's partitions; an empty name means every topic."""

    topic_name: String


RECORD_TYPES: Final[Mapping[int, type[Message]]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    12: FeatureLevelRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
}
"""The metadata records by their type on the wire."""


class Voter(Message):
    """A voter by id, and by directory where it has one."""

    voter_id: Int32
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID


class LeaderChangeMessage(Message, versions=(0, 1), flexible_since=0):
    """Control record: a leader took over, elected by `granting_voters`."""

    version: Int16 = 0
    leader_id: Int32
    voters: Sequence[Voter]
    granting_voters: Sequence[Voter]


class SnapshotHeaderRecord(Message, versions=(0, 0), flexible_since=0):
    """Control record: a snapshot begins."""

    version: Int16 = 0
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Message, versions=(0, 0), flexible_since=0):
    """Control record: the snapshot is whole."""

    version: Int16 = 0


class KRaftVersionRecord(Message, versions=(0, 0), flexible_since=0):
    """Control record: the rules of the quorum; 1 lets its voters change."""

    version: Int16 = 0
    kraft_version: Int16


class Endpoint(Message):
    """Where a voter listens."""

    name: String
    host: String
    port: Uint16


class KRaftVersionFeature(Message):
    """The quorum's rules that a voter can work with."""

    min_supported_version: Int16
    max_supported_version: Int16


class VotersRecordVoter(Message):
    """A voter in full. Kafka calls it Voter, like the one of LeaderChangeMessage."""

    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: Sequence[Endpoint]
    kraft_version_feature: KRaftVersionFeature


class VotersRecord(Message, versions=(0, 0), flexible_since=0):
    """Control record: who votes from here on."""

    version: Int16 = 0
    voters: Sequence[VotersRecordVoter]
