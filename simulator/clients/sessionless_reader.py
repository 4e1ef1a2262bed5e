"""A reader without fetch sessions: one partition a request, the same request each time but for the offset.

A broker has a short way for such requests (`ottla.runtime.repeated_fetches`), and one that is shorter still for a
reader that goes on below the end of the log (`ottla.log.reading_place`). So each partition has a connection of its own,
some readers ask for so little that an answer ends inside a batch, and whoever has reached the end goes back at times.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from ottla.wire.fetch_client import encode_request, fetch_request, parse_response
from ottla.wire.fetch_types import FetchPartition, PartitionData
from simulator.clients.cluster import NoLeader
from simulator.clients.connection import Gone
from simulator.clients.reader import FETCH_KEY, FETCH_VERSION, Reader

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.history import History, Place

WAIT_MS: Final = 500
PARTITION_BYTES: Final = (300, 700, 4096)
"""How much a reader asks for, of which it draws one: a few batches, or many."""
SEEK_SHARE: Final = 0.1
"""How often one that has reached the end goes back."""
SEEK_OFFSETS_MAX: Final = 150
"""Further back than the segment that is written to, mostly, and not so far that reading it again takes long."""


class SessionlessReader(Reader):
    """Reads its partitions for ever, each by itself."""

    def __init__(
        self,
        cluster: ClusterClient,
        history: History,
        places: list[Place],
        rng: random.Random,
        *,
        committed_only: bool,
    ) -> None:
        super().__init__(cluster, history, places, committed_only=committed_only)
        self.seeks = True
        """Whether it still goes back at times."""
        self._rng = rng
        self._partition_bytes = rng.choice(PARTITION_BYTES)

    async def run(self) -> None:
        await asyncio.gather(*(self._read(place) for place in self.positions))

    async def _read(self, place: Place) -> None:
        attempt = 0
        while not self.stopped:
            try:
                attempt = 0 if await self._fetch_one(place) else attempt + 1
            except (Gone, NoLeader):
                attempt += 1
            if attempt:
                await self.cluster.back_off(attempt)
                await self._look_again()

    async def _fetch_one(self, place: Place) -> bool:
        """One fetch of a partition; False if it could not be had."""
        connection = await self.cluster.leader_of(place, f"fetch {place}")
        offset = self.positions[place]
        epoch = self.cluster.epochs.get(place, -1)
        row = FetchPartition(place.partition, epoch, offset, -1, -1, self._partition_bytes)
        request = fetch_request(
            [(self.cluster.topic_ids[place.topic], [row])],
            max_wait_ms=WAIT_MS,
            max_bytes=16384,
            isolation_level=1 if self.committed_only else 0,
        )
        body = encode_request(FETCH_VERSION, request)
        position, frame = await connection.ask(FETCH_KEY, FETCH_VERSION, body, timeout_ms=6000)
        answer = parse_response(frame, position, FETCH_VERSION)
        if answer.error_code:
            return False
        data = answer.topics[0][1][0]
        if not await self._take(place, data, offset):
            return False
        self._go_back_at_times(place, data)
        return True

    def _go_back_at_times(self, place: Place, data: PartitionData) -> None:
        end = data.last_stable_offset if self.committed_only else data.high_watermark
        position = self.positions[place]
        if self.seeks and position >= end > 0 and self._rng.random() < SEEK_SHARE:
            self.positions[place] = max(position - self._rng.randint(1, SEEK_OFFSETS_MAX), 0)
            self.generation += 1
            self.cluster.room.counts["done: reader went back"] += 1
