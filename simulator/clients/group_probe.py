"""Asks for a group's committed offsets, as a tool does: before and after everything was restarted they are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from simulator.clients.cluster import GROUP
from simulator.clients.connection import Gone

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient


class GroupProbe:
    """One question, asked until it is answered."""

    def __init__(self, cluster: ClusterClient, group: str) -> None:
        self.cluster = cluster
        self.answer: dict[str, int] | None = None
        self._group = group

    async def run(self) -> None:
        attempt = 0
        while self.answer is None:
            try:
                self.answer = await self._ask()
            except Gone:
                attempt += 1
                await self.cluster.back_off(attempt)

    async def _ask(self) -> dict[str, int]:
        connection = await self.cluster.coordinator(self._group, GROUP)
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=self._group, topics=None)])
        answer = (await connection.request(request, OffsetFetchResponse, timeout_ms=5000)).groups[0]
        if answer.error_code:
            raise Gone(f"error {answer.error_code}")
        return {
            f"{topic.topic_id}-{row.partition_index}": row.committed_offset
            for topic in answer.topics
            for row in topic.partitions
        }
