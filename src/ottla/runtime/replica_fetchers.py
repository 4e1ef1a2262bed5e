"""Which fetchers there are: one per leader and number, made when there is something to fetch there.

Follows the roles in the partition table. A partition belongs to one fetcher, by its leader and by a hash of its name
over `num.replica.fetchers`; each has a connection of its own. A fetcher without partitions costs nothing and stays,
since the leader it fetched from will be one again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING
from zlib import crc32

from ottla.core.replication.quota import ReplicationQuota
from ottla.runtime.followed_partition import FollowerContext, PartitionKey
from ottla.runtime.replica_fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition
    from ottla.runtime.peers import Peers


class ReplicaFetchers:
    """All fetchers of a broker."""

    __slots__ = ("_context", "_fetchers", "_owners", "_peers", "_running", "quota")

    def __init__(self, peers: Peers, context: FollowerContext) -> None:
        self._peers = peers
        self._context = context
        self._running = False
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._owners: dict[PartitionKey, ReplicaFetcher] = {}
        self.quota = ReplicationQuota(context.config().follower_replication_throttled_rate)
        """What throttled replicas may fetch (`follower.replication.throttled.rate`)."""
        context.table.on_roles_changed(self.roles_changed)

    def __len__(self) -> int:
        """Partitions that are fetched."""
        return len(self._owners)

    @property
    def bytes_total(self) -> int:
        return sum(fetcher.bytes_total for fetcher in self._fetchers.values())

    def start(self) -> None:
        """Begin to fetch; before that nothing is, so that a broker first registers, and its leaders know it."""
        self._running = True
        self.roles_changed(self._context.table.followed())

    def roles_changed(self, partitions: Iterable[Partition]) -> None:
        """These have another leader, another leader epoch, or are gone."""
        if not self._running:
            return
        for partition in partitions:
            key = partition.topic_id, partition.index
            owner = self._owners.pop(key, None)
            wanted = None
            if not partition.gone and not partition.leads and partition.leader_id >= 0:
                wanted = self._fetcher_of(partition)
            if owner is not None and owner is not wanted:
                owner.release(key)
                owner.wake()
            if wanted is not None:
                self._owners[key] = wanted
                wanted.follow(partition)

    def config_changed(self) -> None:
        """`num.replica.fetchers` or the quota may be another one now."""
        self.quota.set_rate(self._context.config().follower_replication_throttled_rate)
        moved = [
            partition
            for partition in self._context.table.followed()
            if (owner := self._owners.get((partition.topic_id, partition.index))) is not None
            and owner is not self._fetcher_of(partition)
        ]
        self.roles_changed(moved)

    def _fetcher_of(self, partition: Partition) -> ReplicaFetcher:
        count = self._context.config().num_replica_fetchers
        number = (crc32(partition.topic.encode()) + partition.index) % count
        key = partition.leader_id, number
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            peer = self._peers.to_broker(partition.leader_id, f"replica-{number}")
            fetcher = self._fetchers[key] = ReplicaFetcher(partition.leader_id, peer, self._context, self.quota)
        return fetcher

    async def close(self) -> None:
        """Fetch nothing any more; when this returns, no log is touched."""
        self._running = False
        self._owners.clear()
        await asyncio.gather(*(fetcher.close() for fetcher in self._fetchers.values()))
