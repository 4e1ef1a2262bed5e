"""Administration against a running broker."""

from __future__ import annotations

import pytest

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.errors import AlreadyExistsError, BrokerError, NotFoundError
from ottla.client.offsets import EARLIEST, LATEST
from ottla.client.producer import Producer
from ottla.model.configs.definition import ConfigSource, ResourceType
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID, TopicPartition
from tests.unit.client.conftest import NewTopic


def test_a_topic_can_be_used_as_soon_as_it_is_created(admin: Admin, new_topic: NewTopic) -> None:
    name = new_topic(partitions=3)
    topic = admin.describe_topic(name)
    assert topic.has_leaders
    assert [partition.partition for partition in topic.partitions] == [0, 1, 2]
    assert topic.topic_id != ZERO_UUID
    assert name in [listed.name for listed in admin.list_topics()]


def test_a_topic_is_not_created_twice(admin: Admin, new_topic: NewTopic) -> None:
    name = new_topic()
    with pytest.raises(AlreadyExistsError, match=name):
        admin.create_topic(name)


def test_a_dry_run_creates_nothing(admin: Admin) -> None:
    admin.create_topic("client-dry-run", partitions=2, validate_only=True)
    with pytest.raises(NotFoundError):
        admin.describe_topic("client-dry-run")


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("client/bad", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("client-bad", {"partitions": 0}, ErrorCode.INVALID_PARTITIONS),
        ("client-bad", {"replication_factor": 99}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("client-bad", {"configs": {"no.such.config": "1"}}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_refused_topic_says_why(admin: Admin, name: str, options: dict[str, object], code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as caught:
        admin.create_topic(name, **options)  # type: ignore[arg-type]
    assert caught.value.code is code
    assert name in str(caught.value)


def test_a_deleted_topic_is_gone(admin: Admin) -> None:
    admin.create_topic("client-short-lived", partitions=1)
    admin.delete_topic("client-short-lived")
    with pytest.raises(NotFoundError):
        admin.describe_topic("client-short-lived")
    assert "client-short-lived" not in [topic.name for topic in admin.list_topics()]


def test_deleting_what_is_not_there_is_an_error(admin: Admin) -> None:
    with pytest.raises(NotFoundError, match="client-never-was"):
        admin.delete_topic("client-never-was")


def test_partitions_are_added_and_never_taken_away(admin: Admin, new_topic: NewTopic) -> None:
    name = new_topic(partitions=2)
    admin.set_partition_count(name, 4)
    assert len(admin.describe_topic(name).partitions) == 4
    with pytest.raises(BrokerError, match="INVALID_PARTITIONS"):
        admin.set_partition_count(name, 3)


def test_configs_of_a_topic_are_set_and_unset(admin: Admin, new_topic: NewTopic) -> None:
    name = new_topic(retention_ms="1000000")

    def own() -> dict[str, str | None]:
        entries = admin.describe_configs(ResourceType.TOPIC, name)
        return {entry.name: entry.value for entry in entries if entry.source is ConfigSource.DYNAMIC_TOPIC}

    assert own() == {"retention.ms": "1000000"}
    admin.alter_configs(ResourceType.TOPIC, name, set_to={"segment.bytes": "2000000"}, unset=["retention.ms"])
    assert own() == {"segment.bytes": "2000000"}
    (single,) = admin.describe_configs(ResourceType.TOPIC, name, ["segment.bytes"])
    assert single.value == "2000000"


def test_a_wrong_config_changes_nothing(admin: Admin, new_topic: NewTopic) -> None:
    name = new_topic()
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        admin.alter_configs(ResourceType.TOPIC, name, set_to={"retention.ms": "1", "retention.bytes": "many"})
    (kept,) = admin.describe_configs(ResourceType.TOPIC, name, ["retention.ms"])
    assert kept.source is not ConfigSource.DYNAMIC_TOPIC


def test_a_brokers_configs_are_shown(admin: Admin) -> None:
    (broker, *_) = admin.describe_cluster().brokers
    names = {entry.name for entry in admin.describe_configs(ResourceType.BROKER, str(broker.node_id))}
    assert {"log.dirs", "num.partitions"} <= names


def test_records_are_deleted_up_to_an_offset(admin: Admin, cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic()
    partition = TopicPartition(name, 0)
    with Producer(cluster) as producer:
        for number in range(10):
            producer.send(name, b"%d" % number)
    assert admin.delete_records({partition: 4}) == {partition: 4}
    assert admin.list_offsets({partition: EARLIEST})[partition].offset == 4
    assert admin.delete_records({partition: -1}) == {partition: 10}
    assert admin.list_offsets({partition: LATEST})[partition].offset == 10
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        admin.delete_records({partition: 11})


def test_the_cluster_describes_itself(admin: Admin) -> None:
    described = admin.describe_cluster()
    assert described.cluster_id
    assert described.controller_id in [broker.node_id for broker in described.brokers]
    quorum = admin.describe_quorum()
    assert quorum.leader_id in [voter.node_id for voter in quorum.voters]
    assert quorum.high_watermark > 0


def test_log_directories_tell_the_size_of_a_partition(admin: Admin, cluster: Cluster, new_topic: NewTopic) -> None:
    name = new_topic()
    with Producer(cluster) as producer:
        producer.send(name, b"x" * 5_000)
    directories = admin.describe_log_dirs()
    sizes = [replica.size_bytes for d in directories for replica in d.replicas if replica.partition.topic == name]
    assert len(sizes) == 1
    assert sizes[0] > 5_000
    assert all(directory.error is None for directory in directories)


def test_an_admin_of_its_own_connects_and_closes(bootstrap: str) -> None:
    with Admin.connect(bootstrap) as admin:
        assert admin.describe_cluster().brokers
