"""Administration: topics, partitions, records. Configs and descriptions of the cluster come from `cluster_admin.py`.

Each call is one attempt after another until it succeeds or `api_timeout_ms` is over; a refusal is a BrokerError with
the broker's own reason. What must not happen twice is not repeated after a connection broke.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Self

from ottla.client.cluster import Cluster
from ottla.client.cluster_admin import ClusterAdmin
from ottla.client.deadline import Backoff, Deadline
from ottla.client.descriptions import CreatedTopic
from ottla.client.errors import STALE_METADATA_CODES, ClientError, broker_error, error_code
from ottla.client.metadata import TopicMetadata
from ottla.client.offsets import Isolation, OffsetAt, by_leader, list_offsets
from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

USE_DEFAULT: Final = -1
"""As a partition count or replication factor: what the broker is configured to use."""
LEADERS_WAIT_MS_MAX: Final = 10_000


class Admin(ClusterAdmin):
    """Every administrative call, over a cluster that somebody else closes, or over one of its own (`Admin.connect`)."""

    @classmethod
    def connect(cls, bootstrap: str | ClientSettings) -> Self:
        """An admin client for these addresses; use it in a `with` block, or close it."""
        settings = bootstrap if isinstance(bootstrap, ClientSettings) else ClientSettings.of(bootstrap)
        return cls(Cluster(settings))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections of the cluster."""
        self._cluster.close()

    # Topics

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = USE_DEFAULT,
        replication_factor: int = USE_DEFAULT,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Make a topic and wait until its partitions have leaders; AlreadyExistsError if it is there."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )

        def attempt() -> CreatedTopic:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=self._broker_ms, validate_only=validate_only)
            answer = self._cluster.controller().call(request, CreateTopicsResponse)
            result = answer.topics[0]
            if result.error_code != ErrorCode.NONE:
                raise broker_error(result.error_code, f"cannot create topic {name!r}", result.error_message)
            return CreatedTopic(
                name=name,
                topic_id=result.topic_id,
                partitions=result.num_partitions,
                replication_factor=result.replication_factor,
            )

        created = self._cluster.retry(attempt, repeatable=False)
        if not validate_only:
            self._await_topic(name, lambda topic: topic.error is ErrorCode.NONE and topic.has_leaders)
        return created

    def list_topics(self, *, internal: bool = True) -> list[TopicMetadata]:
        """All topics by name, with or without the broker's own."""
        self._cluster.retry(lambda: self._cluster.refresh(None))
        known = self._cluster.metadata
        # What was known before and is not in the answer has been deleted.
        newest = max(known.fetched_at.values(), default=0.0)
        listed = [known.topics[name] for name, asked_at in known.fetched_at.items() if asked_at == newest]
        return sorted((topic for topic in listed if internal or not topic.internal), key=lambda topic: topic.name)

    def describe_topic(self, name: str) -> TopicMetadata:
        """One topic as it is now; NotFoundError if it is not there."""
        self._cluster.forget(name)
        return self._cluster.topic(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records and wait until it is gone; NotFoundError if it is not there."""

        def attempt() -> None:
            connection = self._cluster.controller()
            version = connection.version_of(DeleteTopicsRequest)
            names_only = version < 6
            request = DeleteTopicsRequest(
                topics=[] if names_only else [DeleteTopicState(name=name)],
                topic_names=[name] if names_only else [],
                timeout_ms=self._broker_ms,
            )
            result = connection.call(request, DeleteTopicsResponse).responses[0]
            if result.error_code != ErrorCode.NONE:
                raise broker_error(result.error_code, f"cannot delete topic {name!r}", result.error_message)

        self._cluster.retry(attempt, repeatable=False)
        self._await_topic(name, lambda topic: topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def set_partition_count(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Give a topic more partitions; `count` is what it has afterwards. Keys may move to other partitions."""

        def attempt() -> None:
            request = CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
                timeout_ms=self._broker_ms,
                validate_only=validate_only,
            )
            result = self._cluster.controller().call(request, CreatePartitionsResponse).results[0]
            if result.error_code != ErrorCode.NONE:
                raise broker_error(result.error_code, f"cannot add partitions to {name!r}", result.error_message)

        self._cluster.retry(attempt, repeatable=False)
        if not validate_only:
            self._await_topic(name, lambda topic: topic.has_leaders and len(topic.partitions) >= count)

    # Offsets and records

    def list_offsets(
        self, asked: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[TopicPartition, OffsetAt]:
        """See `offsets.list_offsets`."""
        return list_offsets(self._cluster, asked, isolation)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drop the records before each offset (-1: all there are); gives the new first offsets."""
        done: dict[TopicPartition, int] = {}

        def attempt() -> dict[TopicPartition, int]:
            missing = {partition: offset for partition, offset in before.items() if partition not in done}
            for node_id, partitions in by_leader(self._cluster, missing).items():
                self._delete_on(node_id, {partition: missing[partition] for partition in partitions}, done)
            return done

        return self._cluster.retry(attempt)

    def _delete_on(self, node_id: int, before: Mapping[TopicPartition, int], done: dict[TopicPartition, int]) -> None:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for partition, offset in before.items():
            entry = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            topics.setdefault(partition.topic, []).append(entry)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=entries) for name, entries in topics.items()],
            timeout_ms=self._broker_ms,
        )
        answer = self._cluster.connection(node_id).call(request, DeleteRecordsResponse)
        failure: ClientError | None = None
        for topic in answer.topics:
            for result in topic.partitions:
                partition = TopicPartition(topic.name, result.partition_index)
                if result.error_code == ErrorCode.NONE:
                    done[partition] = result.low_watermark
                    continue
                if error_code(result.error_code) in STALE_METADATA_CODES:
                    self._cluster.forget(topic.name)
                failure = broker_error(result.error_code, f"cannot delete records of {partition}")
        if failure is not None:
            raise failure

    def _await_topic(self, name: str, ready: Callable[[TopicMetadata], bool]) -> None:
        """The controller has decided; wait until the brokers know, so that the caller's next request sees it."""
        settings = self._cluster.settings
        backoff = Backoff(settings, Deadline(min(LEADERS_WAIT_MS_MAX, settings.api_timeout_ms)))
        while True:
            self._cluster.refresh((name,))
            found = self._cluster.metadata.topics.get(name)
            if found is not None and ready(found):
                return
            self._cluster.forget(name)
            if not backoff.wait():
                return
