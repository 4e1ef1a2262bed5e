"""Which batches of a query are in the cluster, as the cluster itself knows it.

Two things are kept, both as offsets of groups, which any Kafka keeps safe, replicated and quick to read:

- *progress*, one group per sink partition: the last batch whose rows are committed. It is committed in the same
  transaction as the rows, so it is there exactly if they are.
- the *decision*, one group per query: the last batch that is to be committed, how many tasks it had, and the
  transactions that make it up. It is written after every task has prepared its transaction and before the first of
  them is ended.

The offset is the batch's number; the topic and partition that carry it (the anchor) only have to exist. The
transactions of a decision stand in the metadata of offsets, which holds 4,096 characters, so a long list is spread over
several groups, the shards. The group with the batch's number is written last: it is the decision, and only shards that
were written under its anchor belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.group_descriptions import CommittedOffset
from ottla.client.groups import GroupAdmin
from ottla.model.ids import TopicPartition

TRANSACTIONS_PER_SHARD: Final = 100
"""Each takes at most 19 + 5 + 2 characters, so that they fit the metadata of an offset."""


class Producer(NamedTuple):
    """The producer id and epoch of a transaction."""

    producer_id: int
    epoch: int


class Decision(NamedTuple):
    """The last batch that is to be committed."""

    batch_id: int
    task_count: int
    anchor: TopicPartition


NO_DECISION: Final = Decision(-1, 0, TopicPartition("", -1))


class BatchProgress:
    """What the cluster knows of one query's batches."""

    def __init__(self, cluster: Cluster, prefix: str, query_id: str) -> None:
        self._groups = GroupAdmin(cluster)
        self._prefix = f"{prefix}-{query_id}"

    def transactional_id(self, sink_partition: int) -> str:
        """The id under which a task writes: the same for every attempt, so a later one locks out an earlier one."""
        return f"{self._prefix}-{sink_partition}"

    def progress_group(self, sink_partition: int) -> str:
        """The group whose offset says how far a sink partition is."""
        return f"{self._prefix}-{sink_partition}"

    def committed_batch(self, sink_partition: int) -> int:
        """The last batch of which this sink partition's rows are committed; -1 if there is none."""
        found = self._groups.fetch_offsets(self.progress_group(sink_partition))
        return max((committed.offset for committed in found.values()), default=-1)

    def decision(self) -> Decision:
        """The last decision that was written down."""
        found = self._groups.fetch_offsets(self._prefix)
        if not found:
            return NO_DECISION
        anchor = max(found, key=lambda partition: found[partition].offset)
        return Decision(found[anchor].offset, int(found[anchor].metadata or 0), anchor)

    def decided(self, decision: Decision, sink_partition: int) -> Producer | None:
        """The transaction that is to be committed for a sink partition; None if it has none."""
        shard, _ = divmod(sink_partition, TRANSACTIONS_PER_SHARD)
        return self._read_shard(decision, shard).get(sink_partition)

    def all_decided(self, decision: Decision) -> dict[int, Producer]:
        """The transactions of a decision, by sink partition."""
        shards = range(-(-decision.task_count // TRANSACTIONS_PER_SHARD))
        return {place: producer for shard in shards for place, producer in self._read_shard(decision, shard).items()}

    def decide(self, decision: Decision, producers: Mapping[int, Producer]) -> None:
        """Write down that these transactions are to be committed. Returns when it is safe."""
        for shard in range(-(-decision.task_count // TRANSACTIONS_PER_SHARD)):
            first = shard * TRANSACTIONS_PER_SHARD
            places = range(first, min(first + TRANSACTIONS_PER_SHARD, decision.task_count))
            text = ",".join(
                f"{producers[place][0]}:{producers[place][1]}" if place in producers else "" for place in places
            )
            self._note(self._shard(shard), decision, text)
        self._note(self._prefix, decision, str(decision.task_count))

    def _note(self, group_id: str, decision: Decision, metadata: str) -> None:
        self._groups.commit_offsets(group_id, {decision.anchor: CommittedOffset(decision.batch_id, -1, metadata)})

    def _read_shard(self, decision: Decision, shard: int) -> dict[int, Producer]:
        noted = self._groups.fetch_offsets(self._shard(shard)).get(decision.anchor)
        if noted is None or noted.offset != decision.batch_id:
            return {}
        first = shard * TRANSACTIONS_PER_SHARD
        return {first + place: _producer(entry) for place, entry in enumerate(noted.metadata.split(",")) if entry}

    def _shard(self, shard: int) -> str:
        return f"{self._prefix}-decision-{shard}"


def _producer(entry: str) -> Producer:
    producer_id, _, epoch = entry.partition(":")
    return Producer(int(producer_id), int(epoch))
