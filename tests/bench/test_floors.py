"""A floor that cannot fail protects nobody."""

from __future__ import annotations

import pytest

from bench.errors import NotMeasured, ToolMissing
from bench.floors import FLOORS, Bound, Floor, Verdict, broken, judged
from bench.results import Measure, Results, Sample

RATE = Measure("produce.java_1kb.rate", "Java, 1 kB, acks=1", "MB/s", higher_is_better=True)


def measured(**medians: float) -> Results:
    results = Results()
    for system, value in medians.items():
        results.add(RATE, system, Sample(value, 0))
    return results


@pytest.mark.parametrize(
    ("bound", "limit", "ottla", "verdict"),
    [
        (Bound.RATIO_MIN, 1.15, 120, Verdict.HOLDS),
        (Bound.RATIO_MIN, 1.15, 114, Verdict.FAILS),
        (Bound.RATIO_MAX, 0.5, 50, Verdict.HOLDS),
        (Bound.RATIO_MAX, 0.5, 51, Verdict.FAILS),
        (Bound.VALUE_MAX, 80, 80, Verdict.HOLDS),
        (Bound.VALUE_MAX, 80, 81, Verdict.FAILS),
    ],
)
def test_a_figure_is_held_to_its_floor(bound: Bound, limit: float, ottla: float, verdict: Verdict) -> None:
    assert Floor(RATE.key, bound, limit).judge(measured(kafka=100, ottla=ottla)) is verdict


def test_without_kafka_only_absolute_floors_are_judged() -> None:
    alone = measured(ottla=100)
    assert Floor(RATE.key, Bound.RATIO_MIN, 1.15).judge(alone) is Verdict.NOT_JUDGED
    assert Floor(RATE.key, Bound.VALUE_MAX, 80).judge(alone) is Verdict.FAILS


def test_a_figure_that_ottla_owes_fails_and_says_why() -> None:
    results = measured(kafka=100)
    results.miss(RATE, "ottla", NotMeasured("it did not start"))
    assert [verdict for _floor, verdict in judged(results)] == [Verdict.FAILS]
    assert broken(results) == ["Java, 1 kB, acks=1: not measured (it did not start); wanted at least 1.15 x Kafka"]


def test_a_broker_that_fails_in_one_round_does_not_pass_by_the_others() -> None:
    results = measured(kafka=100, ottla=200)
    results.miss(RATE, "ottla", NotMeasured("connection reset"))
    assert [verdict for _floor, verdict in judged(results)] == [Verdict.FAILS]


def test_a_figure_that_the_machine_cannot_take_is_not_judged() -> None:
    results = Results()
    results.miss(RATE, "ottla", ToolMissing("no go on the path"))
    assert [verdict for _floor, verdict in judged(results)] == [Verdict.NOT_JUDGED]


def test_every_floor_is_about_one_measure() -> None:
    keys = [floor.key for floor in FLOORS]
    assert len(keys) == len(set(keys))
