"""What clients hear of leader epochs, where the present one has no record yet."""

from __future__ import annotations

from dataclasses import replace

from ottla.core.controller.image import PartitionImage
from ottla.runtime.leader_epochs import end_offset_for, epoch_of, latest_epoch
from ottla.runtime.partition import Partition
from tests.unit.runtime.hosted import NODE_ID, Hosted
from tests.unit.runtime.replicas import Cluster

LED = PartitionImage(replicas=(NODE_ID,), isr=(NODE_ID,), leader=NODE_ID)


def ends(partition: Partition, *epochs: int) -> list[tuple[int, int]]:
    return [end_offset_for(partition, epoch) for epoch in epochs]


def test_a_consumer_of_a_new_partition_learns_the_epoch_to_check_its_position_with() -> None:
    partition = Hosted().partition()
    assert (latest_epoch(partition), epoch_of(partition, 0)) == (0, 0)
    assert ends(partition, -1, 0, 1) == [(-1, -1), (0, 0), (-1, -1)]


def test_a_new_epoch_begins_where_the_log_ends_though_nothing_was_written_in_it() -> None:
    hosted = Hosted()
    partition = hosted.partition()
    partition.become_leader(replace(LED, leader_epoch=2))
    hosted.write(7, 0, count=3)
    partition.become_leader(replace(LED, leader_epoch=5))
    assert (latest_epoch(partition), epoch_of(partition, 0), epoch_of(partition, 3)) == (5, 2, 5)
    assert ends(partition, 0, 2, 3, 4, 5, 6) == [(0, 0), (2, 3), (2, 3), (2, 3), (5, 3), (-1, -1)]
    hosted.write(7, 3)
    assert ends(partition, 0, 2, 3, 5, 6) == [(0, 0), (2, 3), (2, 3), (5, 4), (-1, -1)]
    assert (epoch_of(partition, 2), epoch_of(partition, 3)) == (2, 5)


def test_an_epoch_before_the_first_record_ends_there() -> None:
    partition = Hosted().partition()
    partition.become_leader(replace(LED, leader_epoch=4))
    assert ends(partition, 0, 3, 4, 5) == [(0, 0), (3, 0), (4, 0), (-1, -1)]


def test_a_quiet_partition_that_was_asked_about_leaves_no_file_behind() -> None:
    hosted = Hosted()
    partition = hosted.partition()
    assert latest_epoch(partition) == 0
    partition.log.close()
    assert "leader-epoch-checkpoint" not in hosted.world.disk.listdir(partition.log.directory)


def test_a_replica_that_does_not_lead_says_what_its_records_say() -> None:
    cluster = Cluster(2)
    follower = cluster.partition(2)
    assert latest_epoch(follower) == -1
    assert ends(follower, 0) == [(-1, -1)]
