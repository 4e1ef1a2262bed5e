"""What may be asked of the controller, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar
from uuid import UUID

from ottla.core.controller.records import BrokerEndpoint, Record, SupportedFeature
from ottla.model.errors import ApiError, ErrorCode

AnswerT = TypeVar("AnswerT")
DEFAULT: Final = -1
"""A partition count or replication factor that is left to the cluster."""


class Command(Generic[AnswerT]):
    """Something asked of the controller, answered with an AnswerT."""

    __slots__ = ()


class Decision(NamedTuple, Generic[AnswerT]):
    """What the controller makes of a command. The answer holds once the records are committed, and leaves only then."""

    records: tuple[Record, ...]
    answer: AnswerT


class Outcome(NamedTuple):
    """NONE, or why something was refused."""

    code: ErrorCode = ErrorCode.NONE
    message: str | None = None

    @classmethod
    def of(cls, error: ApiError) -> Outcome:
        return cls(error.code, error.message)

    def error(self) -> ApiError:
        """The same as an exception."""
        return ApiError(self.code, self.message or "")


DONE: Final = Outcome()


class NewTopic(NamedTuple):
    """A topic to create. With `assignments`, pairs of partition and replicas, the other two stay DEFAULT."""

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


class CreatedTopic(NamedTuple):
    """What became of a NewTopic. `configs` are the topic's own; the rest is set where the outcome is NONE."""

    name: str
    outcome: Outcome
    topic_id: UUID | None = None
    num_partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class CreateTopics(Command[list[CreatedTopic]]):
    """One answer per name, in the order of the names."""

    topics: Sequence[NewTopic]
    validate_only: bool = False


class TopicReference(NamedTuple):
    """A topic by its name or by its id, not both."""

    name: str | None = None
    topic_id: UUID | None = None


class DeletedTopic(NamedTuple):
    """What became of a TopicReference; both name and id are known where the topic is."""

    name: str | None
    topic_id: UUID | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class DeleteTopics(Command[list[DeletedTopic]]):
    """One answer per topic, in the order asked."""

    topics: Sequence[TopicReference]


class MorePartitions(NamedTuple):
    """A topic that is to have this many partitions; `assignments` holds the replicas of each new one."""

    name: str
    partition_count: int
    assignments: Sequence[Sequence[int]] | None = None


class NamedOutcome(NamedTuple):
    """What became of something with a name."""

    name: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class CreatePartitions(Command[list[NamedOutcome]]):
    """One answer per topic, in the order asked."""

    topics: Sequence[MorePartitions]
    validate_only: bool = False


class ConfigOperation(IntEnum):
    """What an incremental change does to a key, with the codes of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One key of an incremental change; `operation` is a ConfigOperation, or a number that is none."""

    name: str
    operation: int
    value: str | None


class ResourceChange(NamedTuple):
    """A resource and what changes in its configs; `type` is a ResourceType, or a number that is none."""

    type: int
    name: str
    changes: Sequence[ConfigChange]


class ResourceConfigs(NamedTuple):
    """A resource and all configs it is to have."""

    type: int
    name: str
    configs: Sequence[tuple[str, str | None]]


class ResourceOutcome(NamedTuple):
    """What became of a change to a resource."""

    type: int
    name: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class IncrementalAlterConfigs(Command[list[ResourceOutcome]]):
    """One answer per resource, in the order asked."""

    resources: Sequence[ResourceChange]
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs(Command[list[ResourceOutcome]]):
    """Replaces the configs of each resource as a whole."""

    resources: Sequence[ResourceConfigs]
    validate_only: bool = False


class ProducerIdBlock(NamedTuple):
    """The ids from `first` on, `size` of them, belong to whoever asked."""

    first: int
    size: int


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Command[ProducerIdBlock]):
    """A block of producer ids for a broker, or an ApiError raised."""

    broker_id: int
    broker_epoch: int


class FeatureUpdate(NamedTuple):
    """A feature and the level it is to have; `upgrade_type`: 1 up, 2 safe down, 3 unsafe down."""

    name: str
    max_version_level: int
    upgrade_type: int = 1


@dataclass(frozen=True, slots=True)
class UpdateFeatures(Command[Outcome]):
    """All updates or none."""

    updates: Sequence[FeatureUpdate]
    validate_only: bool = False


class PartitionOutcome(NamedTuple):
    """What became of an election."""

    topic: str
    partition: int
    outcome: Outcome


class Election(NamedTuple):
    """What became of all elections, and of each."""

    outcome: Outcome
    partitions: list[PartitionOutcome]


@dataclass(frozen=True, slots=True)
class ElectLeaders(Command[Election]):
    """`election_type` 0 prefers the first replica, 1 takes any that lives. None asks for all that need one."""

    election_type: int
    partitions: Sequence[tuple[str, int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBroker(Command[int]):
    """A broker starts; the answer is its epoch, or an ApiError is raised.

    After a stop that was not clean the partitions it leads begin a new leader epoch: what it had not yet on disk is
    gone, and consumers that have read it can tell by the epoch.
    """

    broker_id: int
    incarnation_id: UUID
    cluster_id: str
    endpoints: Sequence[BrokerEndpoint]
    features: Sequence[SupportedFeature] = ()
    rack: str | None = None
    log_dirs: Sequence[UUID] = ()
    fenced: bool = False
    clean_start: bool = True
    previous_broker_epoch: int = -1
    """Of the life that ended with the last clean stop; -1 after any other end. All that the wire says of the start."""
