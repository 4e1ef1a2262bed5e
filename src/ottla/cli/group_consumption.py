"""`ottla consume --group`: records of the partitions that a group gives us, from where the group is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

from ottla.cli.failures import say
from ottla.cli.start_position import Edge, Start, resolve_start
from ottla.client.cluster import Cluster
from ottla.client.consumer import AtTime, ConsumedRecord, ConsumerSettings, OutOfRange
from ottla.client.fetching import FetchSettings
from ottla.client.group_consumer import GroupConsumer
from ottla.client.group_membership import MembershipSettings
from ottla.client.offsets import EARLIEST, LATEST, Isolation, list_offsets
from ottla.model.ids import TopicPartition

POLL_MS = 1_000
RECORDS_PER_POLL = 500


class GroupConsumption:
    """Reads a topic as a member of a group and commits what was written."""

    def __init__(self, cluster: Cluster, topic: str, group_id: str, start: Start, isolation: Isolation) -> None:
        self._cluster = cluster
        self._start = start
        self._isolation = isolation
        self._topic = topic
        self._group_id = group_id
        self._ends: dict[TopicPartition, int] = {}

    def copy(self, write: Callable[[list[ConsumedRecord]], None], count: int | None, *, follow: bool) -> None:
        """Records to the writer until `count` are written or, unless it follows, the ends are reached."""
        self._cluster.topic(self._topic)  # a topic that is not there is an error, and nothing to wait for
        left = sys.maxsize if count is None else count
        with GroupConsumer(self._cluster, self._membership(), self._first_start, self._settings()) as consumer:
            while left > 0 and (follow or not self._finished(consumer)):
                records = consumer.poll(POLL_MS, records_max=min(left, RECORDS_PER_POLL))
                if records:
                    left -= len(records)
                    write(records)
                consumer.processed()
        if consumer.repeated:
            say(f"group {self._group_id!r} went on without this consumer for a while: some records may be read twice")

    def _finished(self, consumer: GroupConsumer) -> bool:
        """Whether every partition that we were given is read up to where it ended when we were given it."""
        if consumer.rebalances == 0:
            return False
        fresh = [partition for partition in consumer.assigned if partition not in self._ends]
        if fresh:
            found = list_offsets(self._cluster, dict.fromkeys(fresh, LATEST), self._isolation)
            self._ends |= {partition: at.offset for partition, at in found.items()}
        if not consumer.assigned and consumer.joined:
            say(f"group {self._group_id!r} has more members than the topic has partitions: there is none for this one")
        return consumer.joined and all(
            consumer.position(partition) >= self._ends[partition] for partition in consumer.assigned
        )

    def _membership(self) -> MembershipSettings:
        return MembershipSettings(group_id=self._group_id, topics=(self._topic,))

    def _settings(self) -> ConsumerSettings:
        policies = {Edge(EARLIEST): OutOfRange.EARLIEST, Edge(LATEST): OutOfRange.LATEST}
        policy = policies.get(self._start, OutOfRange.ERROR) if isinstance(self._start, Edge) else OutOfRange.ERROR
        return ConsumerSettings(fetch=FetchSettings(isolation=self._isolation), out_of_range=policy)

    def _first_start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int | AtTime]:
        starts, remarks = resolve_start(self._cluster, self._start, partitions)
        for remark in remarks:
            say(remark)
        return starts
