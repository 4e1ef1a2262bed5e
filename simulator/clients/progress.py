"""How far a transactional producer has got, as an offset of a group that is committed in its transactions.

The offset is the number of the transaction, so whoever reads it back knows which one was committed last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.model.errors import ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from simulator.clients.cluster import GROUP
from simulator.clients.connection import Gone
from simulator.history import OffsetUse, Place, Transaction

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.history import History

ATTEMPTS_MAX: Final = 12


class Progress:
    """Of one transactional id."""

    def __init__(self, cluster: ClusterClient, history: History, transactional_id: str, place: Place) -> None:
        self._cluster = cluster
        self._history = history
        self._transactional_id = transactional_id
        self._group = f"{transactional_id}-progress"
        self._place = place

    async def send(self, transaction: Transaction, identity: tuple[int, int]) -> ErrorCode:
        """As part of a transaction; Gone if nobody answers."""
        row = TxnOffsetCommitRequestPartition(
            partition_index=self._place.partition, committed_offset=transaction.number
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=self._group,
            producer_id=identity[0],
            producer_epoch=identity[1],
            topics=[TxnOffsetCommitRequestTopic(name=self._place.topic, partitions=[row])],
        )
        connection = await self._cluster.coordinator(self._group, GROUP)
        answer = await connection.request(request, TxnOffsetCommitResponse, timeout_ms=5000)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def committed(self, transaction: Transaction, begun_us: int) -> None:
        """The transaction was committed, and the offset with it."""
        self._cluster.room.counts["done: commit with an offset"] += 1
        self._note(begun_us, transaction.number, is_read=False)

    async def read(self) -> None:
        """Read it back when nothing is under way, as one that begins to work does."""
        for attempt in range(1, ATTEMPTS_MAX):
            begun_us = self._cluster.room.timeline.now_us
            try:
                offset = await self._ask()
            except Gone:
                await self._cluster.back_off(attempt)
                continue
            if offset >= 0:
                self._note(begun_us, offset, is_read=True)
            return

    async def _ask(self) -> int:
        place = self._place
        if place.topic not in self._cluster.topic_ids:
            await self._cluster.refresh([place.topic])
        topic_id = self._cluster.topic_ids.get(place.topic)
        if topic_id is None:
            raise Gone("a topic that nobody knows")
        topics = [OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[place.partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self._group, topics=topics)], require_stable=True
        )
        connection = await self._cluster.coordinator(self._group, GROUP)
        answer = (await connection.request(request, OffsetFetchResponse, timeout_ms=5000)).groups[0]
        if answer.error_code:
            raise Gone(ErrorCode(answer.error_code).name)
        row = answer.topics[0].partitions[0]
        if row.error_code:
            raise Gone(ErrorCode(row.error_code).name)
        return row.committed_offset

    def _note(self, begun_us: int, offset: int, *, is_read: bool) -> None:
        now_us = self._cluster.room.timeline.now_us
        use = OffsetUse(begun_us, now_us, self._group, self._place, offset, is_read, is_transactional=True)
        self._history.offsets.append(use)
