"""Compiled code leaves what interpreted code leaves: the same files, to the byte, and the same in memory."""

from __future__ import annotations

import tempfile
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.disk import RealFile
from ottla.model.configs.resolve import TopicConfig
from tests.properties.compiled_side import PARTITIONS, TOPICS, Event, Piece, Receive, Request, Side
from tests.unit.api.produce_groups import GROUPS
from tests.unit.runtime.hosted import run

pieces = st.builds(
    Piece,
    partition=st.integers(0, PARTITIONS - 1),
    step=st.sampled_from([0] * 9 + [-1]),
    records=st.integers(1, 3),
    value_bytes=st.sampled_from([0, 1, 30, 500, 9000]),
    later_ms=st.sampled_from([-1, 0, 0, 1, 5000]),
    is_damaged=st.sampled_from([False] * 30 + [True]),
)
requests = st.builds(
    Request,
    pieces=st.lists(pieces, min_size=1, max_size=PARTITIONS, unique_by=lambda piece: piece.partition),
    topic=st.sampled_from([0] * 5 + list(range(len(TOPICS)))),
    acks=st.sampled_from([1, 1, -1]),
    version=st.sampled_from([9, 9, 9, 8]),
)
receives = st.builds(
    Receive,
    requests=st.lists(requests, min_size=1, max_size=5),
    producer=st.none() | st.integers(0, 1),
    file_bytes_max=st.sampled_from([None] * 12 + [300, 1000, 20_000, 40_000]),
)
events = st.builds(
    Event,
    what=st.sampled_from(["begin", "commit", "abort", "epoch", "replicate", "lose", "follow", "alone"]),
    partition=st.integers(0, PARTITIONS - 1),
    producer=st.integers(0, 1),
)
steps = st.one_of(receives, receives, receives, events)
configs = st.builds(
    TopicConfig,
    segment_bytes=st.sampled_from([1 << 14, 1 << 16, 1 << 30]),
    segment_ms=st.sampled_from([2000, 1 << 40]),
    index_interval_bytes=st.sampled_from([0, 100, 4096]),
    segment_index_bytes=st.sampled_from([48, 1 << 20]),
    flush_messages=st.sampled_from([10, (1 << 63) - 1, (1 << 63) - 1]),
    max_message_bytes=st.sampled_from([1000, 1 << 20, 1 << 20]),
    timestamp_after_max_ms=st.sampled_from([1000, (1 << 63) - 1, (1 << 63) - 1]),
    min_insync_replicas=st.integers(1, 2),
)


@pytest.mark.skipif("compiled" not in GROUPS, reason="nothing was compiled here, see hatch_build.py")
@pytest.mark.fuzz
@given(configs, st.lists(steps, max_size=12))
def test_compiled_code_leaves_what_interpreted_code_leaves(config: TopicConfig, script: list[Receive | Event]) -> None:
    reserved: list[tuple[str, int, int]] = []

    def reserve(file: RealFile, start: int, end: int) -> None:
        reserved.append((file.path, start, end))

    async def scenario(first: str, second: str) -> None:
        interpreted = Side(GROUPS["interpreted"], config, first)
        compiled = Side(GROUPS["compiled"], config, second)
        for step in script:
            for side in (interpreted, compiled):
                side.receive(step) if isinstance(step, Receive) else side.happen(step)
            assert compiled.known() == interpreted.known()
        assert await compiled.answers() == await interpreted.answers()
        assert compiled.known() == interpreted.known()
        assert compiled.files() == interpreted.files()
        by_side = [
            [(path[len(side) :], *rest) for path, *rest in reserved if path.startswith(side)]
            for side in (first, second)
        ]
        assert by_side[0] == by_side[1]

    with (
        patch.object(RealFile, "reserve", reserve),
        patch.object(RealFile, "sync", lambda file: None),
        tempfile.TemporaryDirectory() as first,
        tempfile.TemporaryDirectory() as second,
    ):
        run(lambda: scenario(first, second))
