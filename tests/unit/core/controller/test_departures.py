"""A broker that many partitions depend on goes: quickly done, and spread over those that stay."""

from __future__ import annotations

import functools
from collections import Counter

from ottla.core.controller.builder import apply
from ottla.core.controller.cluster_commands import FenceBroker
from ottla.core.controller.commands import NewTopic
from ottla.core.controller.records import PartitionChangeRecord
from ottla.runtime.metadata_codec import build_batch
from tests.measured import least, thread_seconds
from tests.unit.core.controller.cluster import Cluster

TOPICS, PARTITIONS = 50, 100
CPU_SECONDS_MAX = 0.2


def large_cluster() -> Cluster:
    cluster = Cluster(brokers=3, config={"min.insync.replicas": "2"})
    cluster.create(*(NewTopic(f"t{number}", PARTITIONS, 3) for number in range(TOPICS)))
    return cluster


def test_a_third_of_five_thousand_leaders_fails_over_in_little_time() -> None:
    changes: list[PartitionChangeRecord] = []

    def fence(cluster: Cluster) -> None:
        image = cluster.image
        decision = cluster.controller.decide(FenceBroker(1, image.brokers[1].epoch), len(cluster.log))
        build_batch(decision.records, base_offset=len(cluster.log), leader_epoch=1, now_ms=0)
        apply(image, decision.records, offset=image.offset + len(decision.records), epoch=1)
        changes[:] = [record for record in decision.records if isinstance(record, PartitionChangeRecord)]

    assert least(lambda: thread_seconds(functools.partial(fence, large_cluster())), CPU_SECONDS_MAX) < CPU_SECONDS_MAX
    assert len(changes) == TOPICS * PARTITIONS
    new_leaders = Counter(record.leader for record in changes if record.leader is not None)
    assert sum(new_leaders.values()) in range(1600, 1700)
    assert min(new_leaders[2], new_leaders[3]) > 700


def test_a_broker_without_partitions_goes_without_a_change() -> None:
    cluster = Cluster(brokers=3)
    cluster.create(NewTopic("t", assignments=[(0, [1, 2])]))
    written = len(cluster.log)
    cluster.fence(3)
    assert len(cluster.log) == written + 1
