"""A consumer that shares topics with the other members of its group, and commits how far it is.

    with GroupConsumer(cluster, MembershipSettings(group_id="g", topics=("orders",)), start) as consumer:
        while True:
            handle(consumer.poll(1_000))
            consumer.processed()

Theory of operation. There is no thread: `poll` joins, heartbeats, commits and reads, whatever is due. Whoever stays
away for longer than the session time-out is put out of the group, and joins again with its next `poll`.

Offsets are committed for what the caller has called `processed`, never for what was only handed out: after a crash or
an interrupt a record may be seen twice, and is never passed over. At each rebalance everything processed is committed,
all partitions are given up, and reading goes on at what is committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from ottla.client.cluster import Cluster
from ottla.client.consumer import AtTime, ConsumedRecord, Consumer, ConsumerSettings
from ottla.client.errors import ClientError
from ottla.client.group_membership import GroupMembership, MembershipSettings, RejoinError
from ottla.client.groups import GroupAdmin
from ottla.model.ids import TopicPartition

FirstStart = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int | AtTime]]
"""Where to start in partitions that the group has no offset in."""
TOPIC_CHECK_MS: Final = 60_000


class GroupConsumer:
    """A member of a classic group, over a cluster that somebody else closes."""

    def __init__(
        self,
        cluster: Cluster,
        membership: MembershipSettings,
        first_start: FirstStart,
        settings: ConsumerSettings | None = None,
        *,
        commit_interval_ms: int = 5_000,
    ) -> None:
        self.rebalances = 0
        """How often partitions were handed out."""
        self.repeated = False
        """Whether the group went on without this member at some time, so that records may have been read twice."""
        self._cluster = cluster
        self._consumer = Consumer(cluster, settings)
        self._membership = GroupMembership(cluster, membership)
        self._first_start = first_start
        self._commit_interval_ms = commit_interval_ms
        self._commit_at = 0.0
        self._topic_check_at = 0.0
        self._processed: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        try:
            self.close()
        except ClientError:
            if error is None:
                raise  # else what went wrong first is worth more than that the farewell failed, too

    @property
    def assigned(self) -> tuple[TopicPartition, ...]:
        """The partitions that this member reads at the moment."""
        return self._consumer.assigned

    @property
    def joined(self) -> bool:
        """Whether it is in a generation; between two of them nothing is assigned."""
        return self._membership.joined

    def position(self, partition: TopicPartition) -> int:
        """See `Consumer.position`."""
        return self._consumer.position(partition)

    def poll(self, wait_ms: float = 1_000, records_max: int = 500) -> list[ConsumedRecord]:
        """Up to `records_max` records, none if nothing came within `wait_ms`. A rebalance may take longer."""
        try:
            self._take_part()
        except RejoinError as error:
            self._give_up(error)
            return []
        return self._consumer.poll(min(wait_ms, self._membership.heartbeat_due_ms()), records_max)

    def processed(self) -> None:
        """Everything that `poll` has handed out is done with, and may be committed."""
        self._processed = {partition: self._consumer.position(partition) for partition in self._consumer.assigned}

    def commit(self) -> None:
        """Commit what is processed, if that is news."""
        news = {key: offset for key, offset in self._processed.items() if self._committed.get(key) != offset}
        self._commit_at = time.monotonic() + self._commit_interval_ms / 1000
        if news and self._membership.may_commit:
            self._membership.commit(news)
            self._committed |= news

    def close(self) -> None:
        """Commit what is processed and leave the group. The cluster stays open."""
        try:
            self.commit()
        except RejoinError:
            self.repeated = True
        finally:
            self._processed = {}
            self._membership.leave()

    def _take_part(self) -> None:
        now = time.monotonic()
        if not self._membership.joined:
            self._begin(self._membership.join())
            return
        if self._membership.heartbeat_due_ms() == 0:
            self._membership.heartbeat()
        if now >= self._commit_at:
            self.commit()
        if self._membership.leads and now >= self._topic_check_at:
            self._topic_check_at = now + TOPIC_CHECK_MS / 1000
            if self._membership.topics_changed():
                self.commit()
                self._begin(self._membership.join())

    def _begin(self, partitions: tuple[TopicPartition, ...]) -> None:
        """A new generation: read these partitions from where the group is."""
        self.rebalances += 1
        now = time.monotonic()
        self._topic_check_at = now + TOPIC_CHECK_MS / 1000
        self._commit_at = now + self._commit_interval_ms / 1000
        admin = GroupAdmin(self._cluster)
        found = admin.fetch_offsets(self._membership.settings.group_id, partitions, require_stable=True)
        committed = {partition: found[partition].offset for partition in partitions if partition in found}
        fresh = [partition for partition in partitions if partition not in committed]
        self._consumer.assign({**committed, **(self._first_start(fresh) if fresh else {})})
        self._processed, self._committed = {}, committed

    def _give_up(self, error: RejoinError) -> None:
        """The generation is over: commit while that is still allowed, and let go of everything."""
        if error.lost:
            self.repeated = self.repeated or self._processed != self._committed
        else:
            try:
                self.commit()
            except RejoinError:
                self.repeated = True
        self._consumer.assign({})
        self._processed, self._committed = {}, {}
