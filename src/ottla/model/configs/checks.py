"""The checks that config values pass: each takes a parsed value and returns a complaint in Kafka's words, or None."""

from __future__ import annotations

import re
from typing import Final

from ottla.model.configs.definition import Check, ConfigValue

_THROTTLED_REPLICA: Final = re.compile(r"\s*[0-9]+\s*:\s*[0-9]+\s*")
_COUNT: Final = re.compile(r"[0-9]{1,9}")
_DURATION: Final = re.compile(r"P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]{1,9})?S)?)?", re.IGNORECASE)


def _number(value: ConfigValue) -> float:
    return value if isinstance(value, int | float) else float("nan")


def at_least(low: float) -> Check:
    return between(low, None)


def between(low: float, high: float | None) -> Check:
    """The bounds belong to the range."""

    def check(value: ConfigValue) -> str | None:
        if _number(value) < low:
            return f"Value must be at least {low}"
        if high is not None and _number(value) > high:
            return f"Value must be no more than {high}"
        return None

    return check


def gzip_level(value: ConfigValue) -> str | None:
    if value == -1 or 1 <= _number(value) <= 9:
        return None
    return "Value must be between 1 and 9 or equal to -1"


def one_of(*allowed: str) -> Check:
    def check(value: ConfigValue) -> str | None:
        return None if value in allowed else "String must be one of: " + ", ".join(allowed)

    return check


def one_of_any_case(*allowed: str) -> Check:
    def check(value: ConfigValue) -> str | None:
        if isinstance(value, str) and value.upper() in allowed:
            return None
        return "String must be one of (case insensitive): " + ", ".join(allowed)

    return check


def each_of(*allowed: str, may_be_empty: bool = True) -> Check:
    """For lists: every entry is one of these."""

    def check(value: ConfigValue) -> str | None:
        entries = value if isinstance(value, tuple) else ()
        if not entries and not may_be_empty:
            return "Configuration must not be empty. Valid values include: " + ", ".join(allowed)
        if all(entry in allowed for entry in entries):
            return None
        return "String must be one of: " + ", ".join(allowed)

    return check


def no_empty_entries(value: ConfigValue) -> str | None:
    if isinstance(value, tuple) and "" in value:
        return "Configuration values must not be empty."
    return None


def not_empty(value: ConfigValue) -> str | None:
    return "String must be non-empty" if value == "" else None


def throttled_replicas(value: ConfigValue) -> str | None:
    """`*`, or partition:broker pairs."""
    entries = value if isinstance(value, tuple) else ()
    if entries == ("*",) or all(_THROTTLED_REPLICA.fullmatch(entry) for entry in entries):
        return None
    return (
        "must be the literal '*' or a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    )


def connection_overrides(value: ConfigValue) -> str | None:
    """`address:count` pairs."""
    for pair in value.split(",") if isinstance(value, str) else ():
        address, _, count = pair.strip().rpartition(":")
        if pair.strip() and not (address and _COUNT.fullmatch(count)):
            return f"{pair.strip()!r} is not a pair address:count"
    return None


def share_offset_reset(value: ConfigValue) -> str | None:
    """`earliest`, `latest`, or a duration back from now."""
    text = value.lower() if isinstance(value, str) else ""
    if text in ("earliest", "latest"):
        return None
    if text.startswith("by_duration:") and _DURATION.fullmatch(text.removeprefix("by_duration:")):
        return None
    return "The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
