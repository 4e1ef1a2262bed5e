"""The full read at the end: every partition from its start to its end, by a client that has seen nothing before.

A partition that has been read to its end is not asked for any more: a fetch there waits for what will not come, each
round of the reader waits for its slowest fetch, and a round brings no more than one segment of the other partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.clients.cluster import NoLeader
from simulator.clients.connection import Gone
from simulator.clients.reader import EARLIEST, LATEST, Reader
from simulator.history import Poll

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.history import History, Place


class FinalRead:
    """Reads once, and then `is_done`."""

    def __init__(self, cluster: ClusterClient, history: History, places: list[Place], *, committed_only: bool) -> None:
        self.cluster = cluster
        self.is_done = False
        self._history = history
        self._committed_only = committed_only
        self._reader = Reader(cluster, history, places, committed_only=committed_only)
        self._reader.on_poll = self._take
        self.ends: dict[Place, int] = {}
        self._places = places

    async def run(self) -> None:
        for place in self._places:
            self._history.final[place, self._committed_only] = []
            start = await self._ask(place, EARLIEST)
            self._history.final_start[place] = start
            self._reader.positions[place] = start
            self.ends[place] = await self._end_of(place)
            self._leave_if_read(place)
        await self._reader.run()
        self.is_done = True

    async def _end_of(self, place: Place) -> int:
        """The end; of what is committed it is known when no transaction is open any more."""
        committed = self._committed_only
        while True:
            self._reader.committed_only = committed
            stable = await self._ask(place, LATEST)
            self._reader.committed_only = False
            end = await self._ask(place, LATEST)
            self._reader.committed_only = committed
            if stable == end:
                return end
            await self.cluster.back_off(10)

    async def _ask(self, place: Place, timestamp: int) -> int:
        attempt = 0
        while True:
            try:
                return await self._reader.list_offset(place, timestamp)
            except (Gone, NoLeader):
                attempt += 1
                await self.cluster.leader_moved(place, attempt)

    def _take(self, poll: Poll) -> None:
        self._history.final[poll.place, self._committed_only] += poll.records
        self._leave_if_read(poll.place)

    def _leave_if_read(self, place: Place) -> None:
        reader = self._reader
        if reader.positions[place] >= self.ends[place]:
            del reader.positions[place]
            reader.stopped = not reader.positions
