"""A log is compacted when it is dirty enough or overdue, and never beyond what is old, stable and sealed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from ottla.log.compaction import Dirtiness, first_dirty_offset, measure_dirtiness
from ottla.model.configs.resolve import TopicConfig

NOW = 10_000
CONFIG = TopicConfig(cleanup_compact=True, cleanup_delete=False)


@dataclass(frozen=True)
class Piece:
    """A segment, as far as compaction looks at it before it reads it."""

    base_offset: int
    size: int = 100
    first_timestamp: int = 1
    age_timestamp: int = 1


PIECES = [Piece(0), Piece(10), Piece(20), Piece(30)]


def measure(
    pieces: list[Piece] = PIECES,
    config: TopicConfig = CONFIG,
    *,
    checkpoint: int | None = None,
    start: int = 0,
    stable: int = 40,
) -> Dirtiness:
    return measure_dirtiness(
        pieces,
        config,
        checkpoint=checkpoint,
        log_start_offset=start,
        log_end_offset=40,
        last_stable_offset=stable,
        now_ms=NOW,
    )


def test_a_log_that_was_never_cleaned_is_dirty_up_to_its_active_segment() -> None:
    dirtiness = measure()
    assert (dirtiness.first_dirty_offset, dirtiness.first_uncleanable_offset) == (0, 30)
    assert (dirtiness.clean_bytes, dirtiness.dirty_bytes) == (0, 300)
    assert dirtiness.ratio == 1.0
    assert dirtiness.is_due(CONFIG)


def test_the_ratio_is_what_decides() -> None:
    dirtiness = measure(checkpoint=20)
    assert (dirtiness.clean_bytes, dirtiness.dirty_bytes) == (200, 100)
    assert not dirtiness.is_due(CONFIG)
    assert dirtiness.is_due(replace(CONFIG, min_cleanable_dirty_ratio=0.3))
    assert not dirtiness.is_due(replace(CONFIG, min_cleanable_dirty_ratio=1 / 3))


def test_a_log_that_is_clean_up_to_its_active_segment_has_nothing_to_do() -> None:
    for checkpoint in (30, 35):
        dirtiness = measure(checkpoint=checkpoint)
        assert dirtiness.dirty_bytes == 0
        assert not dirtiness.is_due(replace(CONFIG, min_cleanable_dirty_ratio=0.0))


def test_a_log_of_one_segment_has_nothing_to_do() -> None:
    assert measure([Piece(0)]).dirty_bytes == 0
    assert measure([Piece(0)]).ratio == 0.0


def test_an_open_transaction_stops_compaction_in_front_of_its_segment() -> None:
    assert measure(stable=25).first_uncleanable_offset == 20
    assert measure(stable=20).first_uncleanable_offset == 20
    assert measure(stable=0).dirty_bytes == 0


def test_records_that_are_too_young_stay_and_so_does_all_after_them() -> None:
    config = replace(CONFIG, min_compaction_lag_ms=1000)
    pieces = [Piece(0), Piece(10, age_timestamp=NOW - 999), Piece(20), Piece(30)]
    assert measure(pieces, config).first_uncleanable_offset == 10
    old = [Piece(0), Piece(10, age_timestamp=NOW - 1000), Piece(20), Piece(30)]
    assert measure(old, config).first_uncleanable_offset == 30


def test_what_is_overdue_is_cleaned_whatever_the_ratio() -> None:
    config = replace(CONFIG, max_compaction_lag_ms=5000)
    pieces = [*PIECES[:2], Piece(20, first_timestamp=NOW - 5001), Piece(30)]
    dirtiness = measure(pieces, config, checkpoint=20)
    assert dirtiness.overdue_ms == 1
    assert dirtiness.is_due(config)
    young = [*PIECES[:2], Piece(20, first_timestamp=NOW - 5000), Piece(30)]
    assert not measure(young, config, checkpoint=20).is_due(config)
    timeless = [*PIECES[:2], Piece(20, first_timestamp=-1), Piece(30)]
    assert not measure(timeless, config, checkpoint=20).is_due(config)


@pytest.mark.parametrize(
    ("checkpoint", "start", "expected"), [(None, 3, 3), (2, 3, 3), (3, 3, 3), (9, 3, 9), (10, 3, 10), (11, 3, 3)]
)
def test_a_checkpoint_that_the_log_no_longer_fits_counts_for_nothing(
    checkpoint: int | None, start: int, expected: int
) -> None:
    assert first_dirty_offset(checkpoint, start, 10) == expected


def test_a_round_that_ended_inside_a_segment_goes_on_there() -> None:
    dirtiness = measure(checkpoint=15)
    assert dirtiness.first_dirty_offset == 15
    assert dirtiness.dirty_bytes == 200
