"""Lengths of time and moments as a command line spells them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ottla.cli.failures import UsageError

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PLAIN: Final = re.compile(r"([0-9]{1,15})(ms|s|m|h|d)")
_ISO: Final = re.compile(
    r"P(?:([0-9]{1,9})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:\.([0-9]{1,9}))?S)?)?"
)


def parse_duration_ms(text: str, option: str) -> int:
    """`500ms`, `90s`, `15m`, `2h`, `7d`, or ISO 8601 as Kafka's tools take it: `PT1H30M`, `P1DT12H`."""
    plain = text.strip()
    if found := _PLAIN.fullmatch(plain):
        return int(found[1]) * _UNIT_MS[found[2]]
    found = _ISO.fullmatch(plain.upper())
    if found and any(found.groups()):
        days, hours, minutes, seconds, fraction = found.groups()
        whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
        return whole * 1000 + int((fraction or "0").ljust(3, "0")[:3])
    raise UsageError(f"{option} {text!r}: write a length of time such as 15m, 2h, 7d or PT1H30M")


def parse_moment_ms(text: str, option: str) -> int:
    """An ISO date or time as milliseconds since 1970; without a zone it is the user's own."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(f"{option} {text!r}: write an ISO time such as 2026-01-31T12:00:00") from None
    return moment_ms(moment)


def moment_ms(moment: datetime) -> int:
    """Milliseconds since 1970, and 0 for what was before; without a zone it is the user's own time."""
    try:
        seconds = moment.timestamp()
    except (OverflowError, ValueError):  # the first and the last hours of the calendar, in zones that lie beyond it
        seconds = moment.replace(tzinfo=UTC).timestamp()
    return max(int(seconds * 1000), 0)


def duration_text(duration_ms: int) -> str:
    """In the unit that suits it, as `parse_duration_ms` reads it."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms >= 2 * _UNIT_MS[unit]:
            return f"{duration_ms // _UNIT_MS[unit]}{unit}"
    return f"{max(duration_ms, 0)}ms"
