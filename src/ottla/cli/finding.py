"""What `ottla doctor` finds: one line for each check."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Health(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """A check, how it ended, what was seen, and what to do about it."""

    health: Health
    check: str
    seen: str
    advice: str = ""

    def line(self) -> str:
        """The finding on one line."""
        advice = f": {self.advice}" if self.advice else ""
        return f"{self.health.value:<5} {self.check:<20} {self.seen}{advice}"


def ok(check: str, seen: str) -> Finding:
    return Finding(Health.OK, check, seen)


def warn(check: str, seen: str, advice: str) -> Finding:
    return Finding(Health.WARN, check, seen, advice)


def fail(check: str, seen: str, advice: str) -> Finding:
    return Finding(Health.FAIL, check, seen, advice)
