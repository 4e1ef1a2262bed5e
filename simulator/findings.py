"""What a run must not show: broken invariants, anomalies, crashes. The first one is what matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Finding(NamedTuple):
    """Something that must not be."""

    time_us: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"at {self.time_us / 1e6:.6f} s: {self.rule}: {self.text}"


class Findings:
    """In the order in which they came; a rule that is broken over and over counts a few times only."""

    __slots__ = ("_now_us", "_per_rule", "found")

    PER_RULE_MAX = 5

    def __init__(self, now_us: Callable[[], int]) -> None:
        self.found: list[Finding] = []
        self._now_us = now_us
        self._per_rule: dict[str, int] = {}

    def add(self, rule: str, text: str) -> None:
        count = self._per_rule[rule] = self._per_rule.get(rule, 0) + 1
        if count <= self.PER_RULE_MAX:
            self.found.append(Finding(self._now_us(), rule, text))
