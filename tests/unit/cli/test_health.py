"""Each thing that can be wrong with a cluster is found, and nothing else is."""

from __future__ import annotations

from dataclasses import replace

from ottla.cli.finding import Finding, Health
from ottla.cli.health import ClusterState, examine
from ottla.client.descriptions import ClusterDescription, LogDirectory, Quorum, QuorumReplica
from ottla.client.metadata import Broker, PartitionMetadata, TopicMetadata
from ottla.client.reassignments import Reassignment
from ottla.client.settings import Address
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

NOW_MS = 1_000_000


def broker(node_id: int) -> Broker:
    return Broker(node_id, Address("h", 9000 + node_id))


def partition(
    number: int = 0, leader: int = 1, replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3)
) -> PartitionMetadata:
    return PartitionMetadata(number, leader, 0, replicas, isr, (), ErrorCode.NONE)


def topic(*partitions: PartitionMetadata) -> TopicMetadata:
    return TopicMetadata(name="t", partitions=partitions or (partition(),))


def quorum(*voters: tuple[int, int], leader: int = 1) -> Quorum:
    """Voters as ids and how long ago they fetched."""
    replicas = tuple(
        QuorumReplica(node_id=node_id, log_end_offset=5, last_fetch_ms=NOW_MS - ago_ms, last_caught_up_ms=NOW_MS)
        for node_id, ago_ms in voters
    )
    return Quorum(leader_id=leader, leader_epoch=1, high_watermark=5, voters=replicas, observers=())


def directory(free: int = 50, error: str | None = None) -> LogDirectory:
    return LogDirectory(node_id=1, path="/d", error=error, total_bytes=100, usable_bytes=free, replicas=())


HEALTHY = ClusterState(
    described=ClusterDescription(
        cluster_id="c", controller_id=1, brokers=(broker(1), broker(2), broker(3)), features={}
    ),
    topics=[topic()],
    min_insync={"t": 2},
    directories=[directory()],
    quorum=quorum((1, 0), (2, 500), (3, 400)),
    moving={},
)


def bad(state: ClusterState) -> dict[str, Finding]:
    return {finding.check: finding for finding in examine(state) if finding.health is not Health.OK}


def test_nothing_is_wrong_with_a_healthy_cluster() -> None:
    assert bad(HEALTHY) == {}


def test_a_broker_that_does_not_run_is_named() -> None:
    described = replace(HEALTHY.described, brokers=(broker(1), broker(2)), fenced=(broker(3),))
    assert "broker 3 at h:9003" in bad(replace(HEALTHY, described=described))["brokers"].seen
    described = replace(HEALTHY.described, brokers=(broker(1), broker(2)))
    assert "broker 3" in bad(replace(HEALTHY, described=described))["brokers"].seen


def test_voters_that_are_silent_or_too_few() -> None:
    one_away = bad(replace(HEALTHY, quorum=quorum((1, 0), (2, 60_000), (3, 0))))["metadata quorum"]
    assert one_away.health is Health.FAIL
    assert "no other may fail" in one_away.seen
    of_five = bad(replace(HEALTHY, quorum=quorum((1, 0), (2, 60_000), (3, 0), (4, 0), (5, 0))))["metadata quorum"]
    assert of_five.health is Health.WARN
    assert bad(replace(HEALTHY, quorum=quorum((1, 0))))["metadata quorum"].health is Health.WARN
    assert "odd" in bad(replace(HEALTHY, quorum=quorum((1, 0), (2, 0))))["metadata quorum"].advice
    assert bad(replace(HEALTHY, quorum=quorum((1, 0), leader=-1)))["metadata quorum"].health is Health.FAIL
    silent = bad(replace(HEALTHY, quorum=None, moving=None, controller_silent="timed out"))
    assert silent["metadata quorum"].health is Health.FAIL
    assert silent["moves"].health is Health.WARN


def test_partitions_without_leader_or_in_sync_replicas() -> None:
    leaderless = bad(replace(HEALTHY, topics=[topic(partition(leader=-1, isr=(3,)))]))
    assert leaderless["leaders"].health is Health.FAIL
    assert "t-0" in leaderless["leaders"].seen
    below = bad(replace(HEALTHY, topics=[topic(partition(isr=(1,)))]))
    assert below["min.insync.replicas"].health is Health.FAIL
    assert below["in-sync replicas"].health is Health.WARN
    lagging = bad(replace(HEALTHY, topics=[topic(partition(isr=(1, 2)))]))
    assert set(lagging) == {"in-sync replicas"}


def test_many_are_counted_and_a_few_named() -> None:
    many = topic(*(partition(number, leader=-1) for number in range(9)))
    assert bad(replace(HEALTHY, topics=[many]))["leaders"].seen.endswith("t-0, t-1, t-2 and 6 more")


def test_a_replica_on_its_way_is_not_missed() -> None:
    moving = {TopicPartition("t", 0): Reassignment((1, 2, 3), (3,), ())}
    state = replace(HEALTHY, topics=[topic(partition(isr=(1, 2)))], moving=moving)
    assert bad(state) == {}
    assert any("1 partitions move: t-0" in finding.seen for finding in examine(state))


def test_leaders_that_are_elsewhere_and_single_copies() -> None:
    assert "1 of 1" in bad(replace(HEALTHY, topics=[topic(partition(leader=2))]))["balance"].seen
    single = replace(HEALTHY, topics=[topic(partition(replicas=(1,), isr=(1,)))])
    assert set(bad(single)) == {"replication"}
    alone = replace(single, described=replace(HEALTHY.described, brokers=(broker(1),)), quorum=quorum((1, 0)))
    assert bad(alone) == {}


def test_disks_that_are_full_or_gone() -> None:
    assert bad(replace(HEALTHY, directories=[directory(), directory(free=5)]))["disks"].health is Health.WARN
    assert bad(replace(HEALTHY, directories=[directory(free=1)]))["disks"].health is Health.FAIL
    assert "offline" in bad(replace(HEALTHY, directories=[directory(error="KAFKA_STORAGE_ERROR")]))["disks"].seen
    unknown = replace(directory(), total_bytes=-1, usable_bytes=-1)
    assert bad(replace(HEALTHY, directories=[unknown])) == {}
    silent = bad(replace(HEALTHY, directories=[], directories_silent="broker 4: connection refused"))["disks"]
    assert silent.health is Health.FAIL
    assert "broker 4" in silent.seen
