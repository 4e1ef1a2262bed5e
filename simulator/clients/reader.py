"""A consumer of fixed partitions that reads from the beginning, with fetch sessions, and notes everything it sees."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.model.errors import ApiError, ErrorCode
from ottla.wire import records
from ottla.wire.batch import iterate
from ottla.wire.fetch_client import encode_request, fetch_request, parse_response
from ottla.wire.fetch_types import FetchPartition, FetchRequest, PartitionData
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from simulator.clients.cluster import NoLeader
from simulator.clients.connection import Gone
from simulator.history import Place, Poll

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.clients.connection import ClientConnection
    from simulator.history import History

FETCH_KEY: Final = 1
FETCH_VERSION: Final = 17
WAIT_MS: Final = 2000
IDLE_SECONDS: Final = 0.5
"""How often one that has no partitions looks whether it has some."""
EARLIEST, LATEST = -2, -1
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
_CONTROL: Final = Struct(">hh")


def visible_records(fetched: memoryview, aborted: Sequence[tuple[int, int]] | None) -> Iterator[tuple[int, int]]:
    """Offset and value of each record that a reader is shown; `aborted` is None where all are.

    ApiError if a batch is corrupt.
    """
    starts = sorted((first_offset, producer_id) for producer_id, first_offset in aborted or ())
    aborting: dict[int, None] = {}
    for position, header in iterate(fetched):
        batch = fetched[position : position + header.size]
        while starts and starts[0][0] <= header.last_offset:
            aborting[starts.pop(0)[1]] = None
        if header.is_control:
            found = records.iterate(batch)
            if found and found[0].key is not None and _CONTROL.unpack_from(found[0].key)[1] == 0:
                aborting.pop(header.producer_id, None)
        elif aborted is None or not (header.is_transactional and header.producer_id in aborting):
            for record in records.iterate(batch):
                yield record.offset, int((record.value or b"").partition(b" ")[0])


def end_of(fetched: memoryview, offset: int) -> int:
    """The offset after the last whole batch."""
    for _, header in iterate(fetched):
        offset = header.last_offset + 1
    return offset


class Session:
    """A fetch session with one broker."""

    __slots__ = ("connection", "epoch", "number", "sent")

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.number = 0
        self.epoch = 0
        self.sent: dict[Place, tuple[int, int]] = {}


class Reader:
    """Reads its partitions for ever; `positions` is where it is."""

    def __init__(self, cluster: ClusterClient, history: History, places: list[Place], *, committed_only: bool) -> None:
        self.cluster = cluster
        self.history = history
        self.name = cluster.name
        self.committed_only = committed_only
        self.positions: dict[Place, int] = dict.fromkeys(places, 0)
        self.generation = 0
        self.stopped = False
        self.on_poll: Callable[[Poll], None] = history.poll
        self._sessions: dict[ClientConnection, Session] = {}

    async def run(self) -> None:
        attempt = 0
        while not self.stopped:
            try:
                progressed = await self._round()
                attempt = 0 if progressed else attempt + 1
            except (Gone, NoLeader):
                attempt += 1
            if attempt:
                await self.cluster.back_off(attempt)
                await self._look_again()

    async def read_once(self) -> None:
        """One fetch from each leader; Gone or NoLeader where nobody answers."""
        if not await self._round():
            await self._look_again()

    async def _look_again(self) -> None:
        try:
            await self.cluster.refresh(sorted({place.topic for place in self.positions}))
        except Gone:
            self.cluster.leaders.clear()

    async def _round(self) -> bool:
        """One fetch from each leader; False if some partition could not be had."""
        by_leader: dict[ClientConnection, list[Place]] = {}
        if not self.positions:
            await asyncio.sleep(IDLE_SECONDS)
        for place in list(self.positions):
            connection = await self.cluster.leader_of(place, "fetch")
            by_leader.setdefault(connection, []).append(place)
        self._sessions = {held: session for held, session in self._sessions.items() if held in by_leader}
        if len(by_leader) == 1:
            return await self._fetch(*next(iter(by_leader.items())))
        outcomes = await asyncio.gather(*(self._fetch(held, places) for held, places in by_leader.items()))
        return all(outcomes)

    async def _fetch(self, connection: ClientConnection, places: list[Place]) -> bool:
        session = self._sessions.setdefault(connection, Session(connection))
        epochs = self.cluster.epochs
        wanted = {place: (self.positions[place], epochs.get(place, -1)) for place in places if place in self.positions}
        changed = {place: row for place, row in wanted.items() if session.sent.get(place) != row}
        body = encode_request(FETCH_VERSION, self._request(session, changed if session.epoch else wanted, wanted))
        session.sent = dict(wanted)
        position, frame = await connection.ask(FETCH_KEY, FETCH_VERSION, body, timeout_ms=6000)
        answer = parse_response(frame, position, FETCH_VERSION)
        if answer.error_code:
            self._sessions.pop(connection, None)
            return ErrorCode(answer.error_code) in SESSION_ERRORS
        if session.epoch == 0:
            session.number = answer.session_id
        session.epoch = session.epoch % 0x7FFFFFFF + 1 if session.number else 0
        names: dict[object, str] = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        fine = True
        for topic_id, partitions in answer.topics:
            for data in partitions:
                name = names.get(topic_id)
                if name is not None:
                    place = Place(name, data.index)
                    fine = await self._take(place, data, wanted.get(place, (-2, 0))[0]) and fine
        return fine

    def _request(
        self, session: Session, rows: dict[Place, tuple[int, int]], wanted: dict[Place, tuple[int, int]]
    ) -> FetchRequest:
        topics: dict[str, list[FetchPartition]] = {}
        for place, (offset, epoch) in rows.items():
            row = FetchPartition(place.partition, epoch, offset, -1, -1, 4096)
            topics.setdefault(place.topic, []).append(row)
        ids = self.cluster.topic_ids
        forgotten: dict[str, list[int]] = {}
        for place in session.sent:
            if session.epoch and place not in wanted:
                forgotten.setdefault(place.topic, []).append(place.partition)
        return fetch_request(
            [(ids[name], found) for name, found in topics.items()],
            max_wait_ms=WAIT_MS,
            max_bytes=16384,
            isolation_level=1 if self.committed_only else 0,
            session_id=session.number,
            session_epoch=session.epoch,
            forgotten=[(ids[name], found) for name, found in forgotten.items()],
        )

    async def _take(self, place: Place, data: PartitionData, asked: int) -> bool:
        """Note what came of a partition; False if it must be looked for elsewhere."""
        if self.positions.get(place, -1) != asked:
            return True  # It was given back meanwhile, or begun anew.
        code = ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return await self._out_of_range(place)
        if code is not ErrorCode.NONE:
            return False
        fetched = data.records
        if not isinstance(fetched, memoryview) or not len(fetched):
            return True
        begin = self.positions[place]
        aborted = (data.aborted or ()) if self.committed_only else None
        try:
            seen = [row for row in visible_records(fetched, aborted) if row[0] >= begin]
        except ApiError as error:
            text = f"{self.name}: {place} at {begin}: {error}"
            if not self.cluster.room.rot_seen(text):
                self.cluster.room.findings.add("what is read is whole", text)
            return False
        after = max(end_of(fetched, begin), begin)
        self.positions[place] = after
        now_us = self.cluster.room.timeline.now_us
        self.on_poll(Poll(now_us, self.name, self.generation, place, self.committed_only, begin, after, seen))
        return True

    async def _out_of_range(self, place: Place) -> bool:
        position = self.positions[place]
        start = await self.list_offset(place, EARLIEST)
        if start > position and self.positions.get(place) == position:
            self.positions[place] = start
            self.generation += 1
            return True
        end = await self.list_offset(place, LATEST)
        if end < position and self.positions.get(place) == position:
            text = f"{self.name} had read {place} up to {position}, now it ends at {end}"
            self.cluster.room.findings.add("what was read is never taken back", text)
            self.positions[place] = end
            self.generation += 1
        return False

    async def list_offset(self, place: Place, timestamp: int) -> int:
        """The first or the last offset; Gone if nobody says."""
        connection = await self.cluster.leader_of(place, "fetch")
        wanted = ListOffsetsPartition(partition_index=place.partition, timestamp=timestamp)
        request = ListOffsetsRequest(
            isolation_level=1 if self.committed_only else 0,
            topics=[ListOffsetsTopic(name=place.topic, partitions=[wanted])],
        )
        answer = await connection.request(request, ListOffsetsResponse, timeout_ms=5000)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            await self.cluster.leader_moved(place, 1)
            raise Gone(f"ListOffsets: {ErrorCode(found.error_code).name}")
        return found.offset
