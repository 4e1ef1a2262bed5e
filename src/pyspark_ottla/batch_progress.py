"""Which batches of a query are in the cluster, as the cluster itself knows it.

Two things are kept, both as offsets of groups, which any Kafka keeps safe, replicated and quick to read:

- *progress*, one group per sink partition: the last batch whose rows are committed. It is committed in the same
  transaction as the rows, so it is there exactly if they are.
- the *decision*, one group per query: the last batch that is to be committed, with the transactions that make it up.
  It is written after every task has prepared its transaction and before the first of them is ended.

The offset is the batch's number; the topic and partition that carry it mean nothing. The transactions of a decision
stand in the metadata of offsets, which holds 4,096 characters, so a long list is spread over several groups. The
group with the batch's number is written last: it is the decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.client.cluster import Cluster
from ottla.client.group_descriptions import CommittedOffset
from ottla.client.groups import GroupAdmin
from ottla.client.transactional_writer import PreparedTransaction
from ottla.model.ids import TopicPartition

TRANSACTIONS_PER_GROUP: Final = 100
"""Each takes at most 19 + 6 + 2 characters, so that they fit the metadata of an offset."""

Producers = Mapping[int, tuple[int, int]]
"""Sink partition to producer id and epoch."""


class BatchProgress:
    """What the cluster knows of one query's batches."""

    def __init__(self, cluster: Cluster, prefix: str, query_id: str) -> None:
        self._groups = GroupAdmin(cluster)
        self._prefix = f"{prefix}-{query_id}"

    def transactional_id(self, sink_partition: int) -> str:
        """The id under which a task writes; the same for every attempt, so that a later one locks an earlier one out."""
        return f"{self._prefix}-{sink_partition}"

    def progress_group(self, sink_partition: int) -> str:
        return f"{self._prefix}-{sink_partition}"

    def committed_batch(self, sink_partition: int) -> int:
        """The last batch of which this sink partition's rows are committed; -1 if there is none."""
        return _latest(self._groups.fetch_offsets(self.progress_group(sink_partition)))[0]

    def decided(self, batch_id: int, sink_partition: int) -> tuple[int, int] | None:
        """Producer id and epoch of the transaction that is to be committed for a sink partition in a batch."""
        if _latest(self._groups.fetch_offsets(self._prefix))[0] != batch_id:
            return None
        shard, place = divmod(sink_partition, TRANSACTIONS_PER_GROUP)
        batch, text = _latest(self._groups.fetch_offsets(self._shard(shard)))
        entry = text.split(",")[place : place + 1] if batch == batch_id else []
        if not entry or not entry[0]:
            return None
        producer_id, _, epoch = entry[0].partition(":")
        return int(producer_id), int(epoch)

    def decide(self, batch_id: int, prepared: Mapping[int, PreparedTransaction], anchor: TopicPartition) -> None:
        """Write down that these transactions are to be committed. Returns when it is safe."""
        shards: dict[int, list[str]] = {}
        for sink_partition, transaction in prepared.items():
            shard, place = divmod(sink_partition, TRANSACTIONS_PER_GROUP)
            entries = shards.setdefault(shard, [])
            entries += [""] * (place + 1 - len(entries))
            entries[place] = f"{transaction.producer_id}:{transaction.producer_epoch}"
        for shard, entries in shards.items():
            self._groups.commit_offsets(self._shard(shard), {anchor: CommittedOffset(batch_id, -1, ",".join(entries))})
        self._groups.commit_offsets(self._prefix, {anchor: batch_id})

    def _shard(self, shard: int) -> str:
        return f"{self._prefix}-decision-{shard}"


def _latest(offsets: Mapping[TopicPartition, CommittedOffset]) -> tuple[int, str]:
    """The batch that was noted last, whatever topic carried it."""
    found = max(offsets.values(), key=lambda committed: committed.offset, default=None)
    return (-1, "") if found is None else (found.offset, found.metadata)
