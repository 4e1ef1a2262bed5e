"""Compares what came out with what was put in. An empty list is the only good answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from demo.auditor import Seen
from demo.generators import Truth

SHOWN_MAX: Final = 5


def disagreements(
    truths: Mapping[str, Truth], seen: Mapping[str, Seen], strange: Sequence[str], audit: Sequence[Mapping[str, Any]]
) -> list[str]:
    """All that is wrong, in words. `audit` is what Spark itself counts in the results when all is over."""
    wrong = [f"a result that nobody can read: {what}" for what in strange[:SHOWN_MAX]]
    wrong += [f"results of a stream that there is not: {name}" for name in seen if name not in truths]
    for name, truth in truths.items():
        wrong += [f"{name}: {what}" for what in _of_stream(truth, seen.get(name, Seen()))]
    return wrong + _of_audit(truths, audit)


def _of_stream(truth: Truth, seen: Seen) -> list[str]:
    wrong = []
    if truth.failures:
        wrong.append(f"{len(truth.failures):,} events were not written, the first: {truth.failures[0]}")
    elif truth.acknowledged != truth.made:
        wrong.append(f"{truth.made - truth.acknowledged:,} of {truth.made:,} events were not acknowledged")
    known = bytes(seen.times[: truth.made]).ljust(truth.made, b"\0")
    lost = [number for number, times in enumerate(known) if times == 0]
    twice = [number for number, times in enumerate(known) if times > 1]
    invented = [number for number, times in enumerate(seen.times) if times and number >= truth.made]
    for what, numbers in (
        ("were lost", lost),
        ("came out more than once", twice),
        ("came out and were never written", invented),
    ):
        if numbers:
            wrong.append(f"{len(numbers):,} events {what}: {_some(numbers)}")
    for what, expected, found in (("counts", truth.counts, seen.counts), ("sums", truth.amounts, seen.amounts)):
        if expected != found:
            wrong.append(f"{what} differ: written {dict(sorted(expected.items()))}, read {dict(sorted(found.items()))}")
    if seen.out_of_order:
        wrong.append(f"{len(seen.out_of_order):,} results of a key out of order: {_some(seen.out_of_order)}")
    return wrong


def _of_audit(truths: Mapping[str, Truth], audit: Sequence[Mapping[str, Any]]) -> list[str]:
    found = {(row["source"], row["category"]): (row["rows"], row["events"], row["amount"]) for row in audit}
    expected = {
        (name, category): (count, count, truth.amounts[category])
        for name, truth in truths.items()
        for category, count in truth.counts.items()
    }
    return [
        f"{place}: Spark counts (rows, events, sum) {found.get(place)} and not {expected.get(place)}"
        for place in sorted({*found, *expected}, key=str)
        if found.get(place) != expected.get(place)
    ]


def _some(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:SHOWN_MAX])) + (", ..." if len(values) > SHOWN_MAX else "")
