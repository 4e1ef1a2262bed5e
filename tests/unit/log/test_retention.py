"""Segments go when they may, from the oldest on, and never a record that should still be there."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.retention import Expired, expired_segments
from ottla.model.configs.resolve import TopicConfig

NOW = 1_000_000


@dataclass(frozen=True)
class Piece:
    """A segment, as far as retention looks at it."""

    base_offset: int
    size: int = 100
    age_timestamp: int = NOW


def expired(
    pieces: list[Piece],
    *,
    retention_ms: int = -1,
    retention_bytes: int = -1,
    delete: bool = True,
    start: int = 0,
    end: int = 100,
    high_watermark: int = 100,
) -> Expired:
    config = TopicConfig(
        retention_ms=retention_ms, retention_bytes=retention_bytes, cleanup_delete=delete, cleanup_compact=not delete
    )
    return expired_segments(
        pieces, config, log_start_offset=start, log_end_offset=end, high_watermark=high_watermark, now_ms=NOW
    )


def ages(*timestamps: int) -> list[Piece]:
    return [Piece(10 * number, age_timestamp=timestamp) for number, timestamp in enumerate(timestamps)]


def test_without_limits_nothing_goes() -> None:
    assert expired(ages(0, 1, 2)).count == 0


def test_a_segment_goes_when_its_youngest_record_is_too_old() -> None:
    assert expired(ages(NOW - 501, NOW - 500, NOW), retention_ms=500).by_time == 1


def test_an_old_segment_behind_a_young_one_waits_for_it() -> None:
    assert expired(ages(NOW, 0, 0), retention_ms=500).count == 0


def test_records_without_times_do_not_go_at_once() -> None:
    assert expired(ages(-1, -1, NOW), retention_ms=0).count == 0


def test_a_retention_of_zero_keeps_only_this_very_moment() -> None:
    assert expired(ages(NOW - 1, NOW - 1, NOW), retention_ms=0).by_time == 2


def test_the_active_segment_goes_when_all_of_it_is_too_old_and_a_new_one_comes_first() -> None:
    decision = expired(ages(0, 0), retention_ms=500)
    assert decision.count == 2
    assert decision.needs_roll


def test_an_empty_active_segment_stays() -> None:
    pieces = [Piece(0, age_timestamp=0), Piece(10, size=0, age_timestamp=0)]
    decision = expired(pieces, retention_ms=500)
    assert decision.count == 1
    assert not decision.needs_roll


@pytest.mark.parametrize(
    ("retention_bytes", "count"), [(-1, 0), (301, 0), (300, 0), (201, 0), (200, 1), (100, 2), (1, 2), (0, 3)]
)
def test_a_log_keeps_at_least_its_limit_of_bytes(retention_bytes: int, count: int) -> None:
    assert expired(ages(NOW, NOW, NOW), retention_bytes=retention_bytes).by_size == count


def test_segments_below_the_start_go_under_every_policy() -> None:
    assert expired(ages(NOW, NOW, NOW), start=20, delete=False).below_start == 2
    assert expired(ages(NOW, NOW, NOW), start=19, delete=False).below_start == 1
    assert expired(ages(NOW, NOW, NOW), start=100).below_start == 2


def test_a_compacted_topic_loses_nothing_to_time_or_size() -> None:
    assert expired(ages(0, 0, 0), retention_ms=1, retention_bytes=1, delete=False).count == 0


def test_what_lies_below_the_start_does_not_count_for_the_size() -> None:
    decision = expired(ages(NOW, NOW, NOW, NOW), start=10, retention_bytes=250)
    assert (decision.below_start, decision.by_size) == (1, 0)


def test_nothing_goes_that_is_not_below_the_high_watermark() -> None:
    assert expired(ages(0, 0, 0), retention_ms=1, high_watermark=19).count == 1
    assert expired(ages(0, 0, 0), retention_ms=1, high_watermark=99).count == 2
    assert expired(ages(0, 0, 0), retention_ms=1, high_watermark=0).count == 0


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 1000)), min_size=1, max_size=8),
    st.integers(-1, 1000),
    st.integers(-1, 300),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_no_segment_goes_without_a_reason(
    drawn: list[tuple[int, int]], retention_ms: int, retention_bytes: int, start: int, high_watermark: int
) -> None:
    pieces = [Piece(10 * number, size, age) for number, (size, age) in enumerate(drawn)]
    decision = expired_segments(
        pieces,
        TopicConfig(retention_ms=retention_ms, retention_bytes=retention_bytes),
        log_start_offset=start,
        log_end_offset=10 * len(pieces),
        high_watermark=high_watermark,
        now_ms=1000,
    )
    for number in range(decision.count):
        assert 10 * (number + 1) <= high_watermark
    size = sum(piece.size for piece in pieces[decision.below_start :])
    if decision.by_size:
        gone = sum(piece.size for piece in pieces[decision.below_start : decision.below_start + decision.by_size])
        assert 0 <= retention_bytes <= size - gone
    for piece in pieces[decision.below_start + decision.by_size : decision.count]:
        assert 0 <= piece.age_timestamp < 1000 - retention_ms
