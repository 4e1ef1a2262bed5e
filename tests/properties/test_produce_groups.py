"""However requests come together or are cut up, each gets its answer and leaves in the log what it would alone."""

from __future__ import annotations

import errno
from functools import partial
from typing import NamedTuple, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.api import produce
from tests.unit.api.produce_groups import GROUPS, Group, Part, Sender
from tests.unit.api.produce_services import Broker
from tests.unit.log.crash_disk import CrashDisk
from tests.unit.log.support import NOW_MS, ProducerFields, batch_of, read_all
from tests.unit.runtime.hosted import Hosted, run

PRODUCERS = 2
PARTITIONS = 3


class Piece(NamedTuple):
    """A batch of a request."""

    partition: int
    """3 does not exist."""
    producer: int | None
    step: int
    """How far its sequence number is from the one that would be next."""
    records: int
    later_ms: int
    is_damaged: bool


class Request(NamedTuple):
    pieces: list[Piece]
    acks: int
    version: int


class Receive(NamedTuple):
    requests: list[Request]
    is_disk_full: bool


pieces = st.builds(
    Piece,
    partition=st.sampled_from([0, 0, 0, 1, 1, 2, 2, 3]),
    producer=st.none() | st.integers(0, PRODUCERS - 1),
    step=st.sampled_from([0] * 6 + [-1, 1]),
    records=st.integers(1, 3),
    later_ms=st.sampled_from([0, 0, 0, 1, 5000]),
    is_damaged=st.sampled_from([False] * 15 + [True]),
)
requests = st.builds(
    Request,
    pieces=st.lists(pieces, max_size=4),
    acks=st.sampled_from([1, 1, -1, 7]),
    version=st.sampled_from([6, 8, 9, 12]),
)
receives = st.builds(
    Receive, requests=st.lists(requests, min_size=1, max_size=5), is_disk_full=st.sampled_from([False] * 9 + [True])
)


class Side:
    """One of two brokers that are asked the same; only one of them writes ahead."""

    def __init__(self, group: Group | None) -> None:
        self.broker = Broker(Hosted())
        self.sender = Sender(self.broker.services, group)
        self.next_sequence: dict[tuple[int, int], int] = {}

    def receive(self, receive: Receive) -> None:
        error = OSError(errno.ENOSPC, "No space left on device") if receive.is_disk_full else None
        cast(CrashDisk, self.broker.services.world.disk).fail_writes = lambda size: error
        frames = []
        for request in receive.requests:
            parts: list[Part] = [(piece.partition, self._batch(piece)) for piece in request.pieces]
            frames.append(self.sender.frame(parts, acks=request.acks, version=request.version))
        self.sender.receive(frames)

    def _batch(self, piece: Piece) -> bytearray:
        fields = ProducerFields()
        if piece.producer is not None:
            key = piece.producer, piece.partition
            expected = self.next_sequence.get(key, 0)
            fields = ProducerFields(piece.producer, 0, max(0, expected + piece.step * piece.records))
            if piece.step == 0 and not piece.is_damaged:
                self.next_sequence[key] = expected + piece.records
        batch = batch_of(piece.records, timestamp=NOW_MS + piece.later_ms, producer=fields)
        if piece.is_damaged:
            batch[-1] ^= 1
        return batch

    def logs(self) -> list[list[bytes]]:
        return [read_all(self.broker.hosted.partition(index).log) for index in range(PARTITIONS)]


@pytest.mark.parametrize("kind", list(GROUPS))
@given(script=st.lists(receives, max_size=12))
def test_groups_change_nothing_but_the_cost(kind: str, script: list[Receive]) -> None:
    async def scenario() -> None:
        together, alone = Side(GROUPS[kind]), Side(None)
        for receive in script:
            together.receive(receive)
            alone.receive(receive)
            assert await together.sender.settled() == await alone.sender.settled()
        assert together.logs() == alone.logs()
        counters = [side.broker.hosted.partition().counters for side in (together, alone)]
        assert counters[0].bytes_in == counters[1].bytes_in
        assert counters[0].produce_requests == counters[1].produce_requests

    run(scenario)


@given(st.lists(receives, max_size=12), st.integers(1, 3))
def test_turns_change_nothing_but_the_time(script: list[Receive], per_turn: int) -> None:
    """A request that is served in turns, as those of very many partitions are, is served as if it were short."""

    async def scenario(patch: pytest.MonkeyPatch) -> None:
        in_turns, at_once = Side(None), Side(None)
        patch.setattr(produce, "PARTITIONS_PER_TURN", per_turn)
        for receive in script:
            for request in receive.requests:
                at_once.receive(Receive([request], receive.is_disk_full))
                with patch.context() as few:
                    few.setattr(produce, "PARTITIONS_INLINE_MAX", 0)
                    in_turns.receive(Receive([request], receive.is_disk_full))
                assert await in_turns.sender.settled() == await at_once.sender.settled()
        assert in_turns.logs() == at_once.logs()

    with pytest.MonkeyPatch.context() as patch:
        run(partial(scenario, patch))
