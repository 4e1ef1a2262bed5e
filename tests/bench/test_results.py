"""What a page says is what was measured."""

from __future__ import annotations

import pytest

from bench.results import Measure, Results, Sample, number

RATE = Measure("fetch.1mb.rate", "1 MB", "MB/s", higher_is_better=True)


def test_the_median_leaves_out_rounds_that_others_disturbed() -> None:
    results = Results()
    for value, foreign_percent in ((100, 0), (110, 0), (20, 90)):
        results.add(RATE, "ottla", Sample(value, foreign_percent))
    assert results.median(RATE, "ottla") == 105


def test_disturbed_rounds_count_where_there_are_no_others() -> None:
    results = Results()
    results.add(RATE, "ottla", Sample(20, 90))
    assert results.median(RATE, "ottla") == 20


def test_a_ratio_needs_both_systems() -> None:
    results = Results()
    results.add(RATE, "ottla", Sample(20, 0))
    assert results.ratio(RATE) is None
    results.add(RATE, "kafka", Sample(10, 0))
    assert results.ratio(RATE) == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0.00"), (0.0123, "0.012"), (0.5, "0.50"), (12.34, "12.3"), (70_123.4, "70 123")],
)
def test_figures_are_short(value: float | None, text: str) -> None:
    assert number(value) == text
