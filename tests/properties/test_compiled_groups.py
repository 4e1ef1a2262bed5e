"""Compiled code leaves what interpreted code leaves: the same files, to the byte, and the same in memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.disk import RealDisk, RealFile
from ottla.model.configs.resolve import TopicConfig
from ottla.runtime.partition import Partition
from tests.unit.api.produce_groups import GROUPS, Group, Part, Sender
from tests.unit.api.produce_services import Broker
from tests.unit.log.support import NOW_MS, ProducerFields, batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run

PARTITIONS = 2


class StingyDisk(RealDisk):
    """Real files, which get room for a few bytes at a time: 64, and blocks from 32 kB on."""

    __slots__ = ()
    fill_bytes = 64


class Piece(NamedTuple):
    """A batch of a request."""

    partition: int
    step: int
    """How far its sequence number is from the one that would be next."""
    records: int
    value_bytes: int
    later_ms: int


requests = st.lists(
    st.builds(
        Piece,
        partition=st.integers(0, PARTITIONS - 1),
        step=st.sampled_from([0] * 9 + [-1]),
        records=st.integers(1, 3),
        value_bytes=st.sampled_from([0, 1, 30, 500, 9000]),
        later_ms=st.sampled_from([-1, 0, 0, 1, 5000]),
    ),
    min_size=1,
    max_size=3,
)
configs = st.builds(
    TopicConfig,
    segment_bytes=st.sampled_from([1 << 14, 1 << 16, 1 << 30]),
    index_interval_bytes=st.sampled_from([0, 100, 4096]),
    segment_index_bytes=st.sampled_from([48, 1 << 20]),
    flush_messages=st.sampled_from([10, (1 << 63) - 1, (1 << 63) - 1]),
)


class Side:
    """A broker with files of its own."""

    def __init__(self, group: Group, config: TopicConfig, directory: str, *, is_idempotent: bool) -> None:
        self._directory = Path(directory)
        self._is_idempotent = is_idempotent
        hosted = Hosted({TOPIC: config}, partitions=PARTITIONS, disk=StingyDisk(), directory=directory)
        self.broker = Broker(hosted)
        self.sender = Sender(self.broker.services, group)
        self._next_sequence: dict[int, int] = {}
        first = Piece(0, 0, 1, 0, 0)
        for index in range(PARTITIONS):  # What a producer sends first is written alone.
            self.receive([[first._replace(partition=index)]])

    def receive(self, receive: list[list[Piece]]) -> None:
        self.sender.receive([self.sender.frame([self._part(piece) for piece in pieces]) for pieces in receive])

    def _part(self, piece: Piece) -> Part:
        fields = ProducerFields()
        if self._is_idempotent:
            expected = self._next_sequence.get(piece.partition, 0)
            fields = ProducerFields(7, 0, max(0, expected + piece.step * piece.records))
            if piece.step == 0:
                self._next_sequence[piece.partition] = expected + piece.records
        timestamp = NOW_MS + piece.later_ms if piece.later_ms >= 0 else -1
        batch = batch_of(piece.records, timestamp=timestamp, producer=fields, value=b"x" * piece.value_bytes)
        return piece.partition, batch

    def files(self) -> dict[str, bytes]:
        paths = (path for path in self._directory.rglob("*") if path.is_file())
        return {path.relative_to(self._directory).as_posix(): path.read_bytes() for path in sorted(paths)}

    def known(self) -> list[Any]:
        partitions = [self.broker.hosted.partition(index) for index in range(PARTITIONS)]
        counters = partitions[0].counters
        return [
            *map(_known, partitions),
            [getattr(counters, name) for name in counters.__slots__],
            self.sender.direct,
        ]


def _known(partition: Partition) -> list[Any]:
    log = partition.log
    segment, indexes, tail = log.active, log.active.indexes, log.active.tail
    return [
        (partition.high_watermark, log.log_end_offset, log.recovery_point, log.epochs.entries),
        [(segment.base_offset, segment.size) for segment in log.segments],
        (segment.fill_at, segment.last_offset_max, segment.log.used, segment.has_room),
        tail and (tail.start, tail.last_offsets, tail.positions),
        (indexes.bytes_since_entry, indexes.max_timestamp, indexes.max_timestamp_offset),
        [(index.entries(), index.last_key, index.last_value) for index in (indexes.offsets, indexes.times)],
        [(entry, entry.batches) for entry in log.producers.to_snapshot()],
    ]


@pytest.mark.skipif("compiled" not in GROUPS, reason="nothing was compiled here, see hatch_build.py")
@given(configs, st.booleans(), st.lists(st.lists(requests, min_size=1, max_size=5), max_size=12))
def test_compiled_code_leaves_what_interpreted_code_leaves(
    config: TopicConfig, is_idempotent: bool, script: list[list[list[Piece]]]
) -> None:
    reserved: list[tuple[str, int, int]] = []

    def reserve(file: RealFile, start: int, end: int) -> None:
        reserved.append((file.path, start, end))

    async def scenario(first: str, second: str) -> None:
        interpreted = Side(GROUPS["interpreted"], config, first, is_idempotent=is_idempotent)
        compiled = Side(GROUPS["compiled"], config, second, is_idempotent=is_idempotent)
        for receive in script:
            interpreted.receive(receive)
            compiled.receive(receive)
            assert compiled.known() == interpreted.known()
        assert await compiled.sender.settled() == await interpreted.sender.settled()
        assert compiled.files() == interpreted.files()
        by_side = [
            [(path[len(side) :], *rest) for path, *rest in reserved if path.startswith(side)]
            for side in (first, second)
        ]
        assert by_side[0] == by_side[1]

    with (
        patch.object(RealFile, "reserve", reserve),
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
    ):
        run(lambda: scenario(first, second))
