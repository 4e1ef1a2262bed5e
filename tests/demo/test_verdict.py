"""That the demo judges rightly."""

from __future__ import annotations

from typing import Any

import pytest

from demo.auditor import Seen
from demo.generators import Truth
from demo.verdict import disagreements

EVENTS = [("ann", "/", 1), ("bob", "/cart", 1), ("ann", "/cart", 1)]


def truth() -> Truth:
    written = Truth(made=len(EVENTS), acknowledged=len(EVENTS))
    for _, page, amount in EVENTS:
        written.counts[page] += 1
        written.amounts[page] += amount
    return written


def seen(*numbers: int) -> Seen:
    found = Seen()
    for number in numbers:
        key, page, amount = EVENTS[number % len(EVENTS)]
        found.take({"n": number, "category": page, "amount": amount}, key)
    return found


def audit(cart_rows: int = 2, cart_events: int = 2, cart_sum: int = 2) -> list[dict[str, Any]]:
    return [
        {"source": "activity", "category": "/", "rows": 1, "events": 1, "amount": 1},
        {"source": "activity", "category": "/cart", "rows": cart_rows, "events": cart_events, "amount": cart_sum},
    ]


def verdict(found: Seen, counted: list[dict[str, Any]] | None = None, written: Truth | None = None) -> list[str]:
    return disagreements(
        {"activity": written or truth()}, {"activity": found}, [], audit() if counted is None else counted
    )


def test_all_events_once_in_the_order_of_each_key_is_right() -> None:
    assert verdict(seen(1, 0, 2)) == []


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (seen(0, 1), "1 events were lost: 2"),
        (seen(), "3 events were lost: 0, 1, 2"),
        (seen(0, 1, 1, 2), "1 events came out more than once: 1"),
        (seen(0, 1, 2, 3), "1 events came out and were never written: 3"),
        (seen(2, 1, 0), "1 results of a key out of order: ann 0 after 2"),
    ],
)
def test_what_is_wrong_is_named(found: Seen, complaint: str) -> None:
    assert f"activity: {complaint}" in verdict(found)


@pytest.mark.parametrize("counted", [audit(cart_rows=3), audit(cart_events=1), audit(cart_sum=9), [], audit()[:1]])
def test_spark_must_count_the_same(counted: list[dict[str, Any]]) -> None:
    assert any("Spark counts" in complaint for complaint in verdict(seen(0, 1, 2), counted))


def test_a_wrong_sum_is_named() -> None:
    written = truth()
    written.amounts["/"] += 1
    assert any("sums differ" in complaint for complaint in verdict(seen(0, 1, 2), written=written))


def test_events_that_were_not_acknowledged_are_named() -> None:
    written = truth()
    written.acknowledged -= 1
    assert verdict(seen(0, 1, 2), written=written) == ["activity: 1 of 3 events were not acknowledged"]


def test_results_of_other_streams_and_unreadable_ones_are_named() -> None:
    wrong = disagreements({"activity": truth()}, {"activity": seen(0, 1, 2), "x": Seen()}, ["visits-0"], audit())
    assert wrong == ["a result that nobody can read: visits-0", "results of a stream that there is not: x"]
