"""A connection that remembers its last fetch gets what one gets that asks for the first time, whatever has happened.

Records are written, in transactions and without, deleted, leaders change, partitions come and go. After each step both
ask the same: any partitions, in any order, from any offset, in any version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TypeAlias, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.api import fetch
from ottla.api.context import Rememberer, RequestContext
from ottla.core.controller.image import PartitionImage, TopicImage
from ottla.model.configs.resolve import TopicConfig
from ottla.wire.batch import read_header
from ottla.wire.fetch_client import encode_request, parse_response
from ottla.wire.fetch_types import FLEXIBLE_SINCE, SESSION_SINCE, TOPIC_ID_SINCE, FetchPartition, FetchRequest
from tests.unit.api.fetch_services import fetch_services, joined
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import NODE_ID, TOPIC, Hosted, run

PARTITIONS = 5
TOPIC_ID = UUID(int=100)
OTHER_NODE_ID = NODE_ID + 1

Row: TypeAlias = tuple[int, int, int, int, int, object, object, bytes]
"""Index, error, high watermark, last stable offset, log start, aborted, who leads, records."""


@dataclass(frozen=True)
class Change:
    """Something that happens to a partition."""

    what: str
    index: int
    producer: int
    part: float


@dataclass(frozen=True)
class Ask:
    """A fetch of some partitions: each with how far into the log it is, and how its epoch differs from the leader's."""

    version: int
    isolation: int
    bytes_max: int
    rows: list[tuple[int, float, int | None]]


changes = st.builds(
    Change,
    what=st.sampled_from(
        ["append"] * 4 + ["write", "write", "commit", "abort", "delete", "epoch", "elsewhere", "here"]
    ),
    index=st.integers(0, PARTITIONS - 1),
    producer=st.integers(1, 3),
    part=st.floats(0, 1),
)
rows = st.tuples(
    st.integers(0, PARTITIONS),  # The last one does not exist.
    st.sampled_from([0.0, 0.4, 1.0, 1.0, 1.0, 1.5]),
    st.sampled_from([None, None, 0, 0, 1, -1]),
)
asks = st.builds(
    Ask,
    version=st.sampled_from([4, 6, 9, 11, 12, 12, 13, 18]),
    isolation=st.integers(0, 1),
    bytes_max=st.sampled_from([1 << 20] * 3 + [300]),
    rows=st.lists(rows, min_size=1, max_size=PARTITIONS + 1, unique_by=lambda row: row[0]),
)


class Two:
    """A broker, and two who ask it."""

    def __init__(self) -> None:
        self.hosted = Hosted(partitions=PARTITIONS)
        self.hosted.open_logs()
        self.services = fetch_services(self.hosted)
        self.connection = cast(Rememberer, SimpleNamespace(remembered_fetch=None, repeated_fetch=None))
        self.sequences: dict[tuple[int, int], int] = {}

    def happen(self, change: Change) -> None:
        partition = self.hosted.table.hosted(TOPIC, change.index)
        if change.what == "elsewhere" or (
            change.what in {"here", "epoch"} and partition.leads != (change.what == "epoch")
        ):
            self._elect(change.index, OTHER_NODE_ID if change.what == "elsewhere" else NODE_ID)
        elif not partition.leads:
            return
        elif change.what == "append":
            batch = batch_of(2)
            partition.append(memoryview(batch), read_header(batch), self.hosted.clock.ms)
        elif change.what == "write":
            key = change.producer, change.index
            sequence = self.sequences.get(key, 0)
            self.hosted.write(change.producer, sequence, index=change.index)
            self.sequences[key] = sequence + 1
        elif change.what in {"commit", "abort"}:
            if (change.producer, change.index) in self.sequences:
                self.hosted.end(change.producer, committed=change.what == "commit", index=change.index)
        elif change.what == "delete":
            partition.log.delete_records_before(int(partition.high_watermark * change.part))
            partition.changed()

    def _elect(self, index: int, leader: int) -> None:
        states = []
        for number in range(PARTITIONS):
            now = self.hosted.table.hosted(TOPIC, number)
            state = PartitionImage(
                replicas=(NODE_ID, OTHER_NODE_ID), isr=(NODE_ID,), leader=now.leader_id, leader_epoch=now.leader_epoch
            )
            if number == index:
                state = replace(state, leader=leader, leader_epoch=now.leader_epoch + 1)
            states.append(state)
        self.hosted.table.host(TopicImage(TOPIC, TOPIC_ID, tuple(states)), TopicConfig())

    def compare(self, asked: Ask) -> None:
        order = [index for index, _, _ in asked.rows]
        remembered, plain = self._ask(asked, self.connection), self._ask(asked, None)
        assert [index for index, *_ in remembered] == order
        if asked.bytes_max < 1 << 20:
            # Who gets the little room is not said; that somebody gets it, and what all are told, is.
            assert any(row[-1] for row in remembered) == any(row[-1] for row in plain)
            remembered, plain = told(remembered), told(plain)
        assert sorted(remembered, key=lambda row: row[0]) == sorted(plain, key=lambda row: row[0])

    def _ask(
        self, asked: Ask, connection: Rememberer | None
    ) -> list[tuple[int, int, int, int, int, object, object, bytes]]:
        topic = TOPIC_ID if asked.version >= TOPIC_ID_SINCE else TOPIC
        wanted = [self._wanted(row) for row in asked.rows]
        request = FetchRequest(
            -1, 0, 1, asked.bytes_max, asked.isolation, 0, -1, [(topic, wanted)], [], "", None, -1, {}
        )
        context = RequestContext(
            self.services, 1, asked.version, 7, "c", "10.0.0.1", "PLAINTEXT", connection=connection
        )
        chunks = fetch.handle(context, memoryview(encode_request(asked.version, request)), 0)
        assert isinstance(chunks, list)
        answer = parse_response(joined(chunks), 5 if asked.version >= FLEXIBLE_SINCE else 4, asked.version)
        assert asked.version < SESSION_SINCE or answer.session_id == 0
        ((key, partitions),) = answer.topics
        assert key == topic
        return [
            (
                row.index, row.error_code, row.high_watermark, row.last_stable_offset, row.log_start_offset,
                row.aborted, row.current_leader, bytes(cast(memoryview, row.records or b"")),
            )
            for row in partitions
        ]  # fmt: skip

    def _wanted(self, row: tuple[int, float, int | None]) -> FetchPartition:
        index, part, epoch_step = row
        if index == PARTITIONS:
            return FetchPartition(index, -1, 0, -1, -1, 1 << 20)
        partition = self.hosted.table.hosted(TOPIC, index)
        epoch = -1 if epoch_step is None else partition.leader_epoch + epoch_step
        return FetchPartition(index, epoch, int(partition.high_watermark * part), -1, -1, 1 << 20)


def told(rows: list[Row]) -> list[Row]:
    """The rows without their records."""
    return [(*row[:5], None, None, b"") for row in rows]


@pytest.fixture(autouse=True, scope="module")
def _remember_short_requests() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetch, "REMEMBERED_BYTES_MIN", 0)
        yield


@given(st.lists(st.one_of(changes, changes, asks), max_size=40))
def test_to_remember_changes_nothing_but_the_cost(script: list[Change | Ask]) -> None:
    async def scenario() -> None:
        await asyncio.sleep(0)
        two = Two()
        for step in script:
            if isinstance(step, Ask):
                two.compare(step)
            else:
                two.happen(step)
        if two.connection.remembered_fetch is not None:
            two.connection.remembered_fetch.close()
        assert two.services.fetches.remembered.partitions == 0
        assert all(not two.hosted.table.hosted(TOPIC, index).watchers for index in range(PARTITIONS))

    run(scenario)
