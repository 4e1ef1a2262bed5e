"""Patterns that members subscribe to: RE2's syntax and engine, which takes time linear in its input.

A pattern is bounded in its length and in the size of the program it compiles to, so that one match of one topic's name
is bounded too. A pattern meets each topic once: what it matched is kept, and only names that came since are tried.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import re2

from ottla.model.errors import ApiError, ErrorCode

PATTERN_LENGTH_MAX: Final = 4096
PROGRAM_SIZE_MAX: Final = 1500
"""Instructions of RE2. `[a-z]+` has 5, `.*` some 10, a class of Unicode letters 1,200."""
PATTERNS_KEPT_MAX: Final = 128
ENGINE_MEMORY_BYTES: Final = 4 << 20


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = ENGINE_MEMORY_BYTES
    return options


_OPTIONS: Final = _options()


def compile_pattern(pattern: str) -> Any:
    """The compiled pattern, or INVALID_REGULAR_EXPRESSION."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise _invalid(pattern, f"it is longer than {PATTERN_LENGTH_MAX} characters")
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeEncodeError) as error:
        raise _invalid(pattern, _reason(error)) from None
    if compiled.programsize > PROGRAM_SIZE_MAX:
        raise _invalid(pattern, f"it compiles to more than {PROGRAM_SIZE_MAX} instructions")
    return compiled


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(error)


def _invalid(pattern: str, reason: str) -> ApiError:
    shown = pattern if len(pattern) <= 100 else f"{pattern[:100]}..."
    return ApiError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.",
    )


class _Kept:
    """A pattern and what it matched among the names that it has met."""

    __slots__ = ("compiled", "matched", "met")

    def __init__(self, compiled: Any) -> None:
        self.compiled = compiled
        self.met: frozenset[str] = frozenset()
        self.matched: frozenset[str] = frozenset()


class PatternMatches:
    """The patterns of one shard. Forgets the one that was not asked for longest."""

    __slots__ = ("_kept", "_names", "_topics")

    def __init__(self) -> None:
        self._kept: dict[str, _Kept] = {}
        self._topics: Mapping[str, object] | None = None
        self._names: frozenset[str] = frozenset()

    def topics(self, pattern: str, topics: Mapping[str, object]) -> frozenset[str]:
        """The topics whose whole name matches, or INVALID_REGULAR_EXPRESSION."""
        kept = self._kept.pop(pattern, None)
        if kept is None:
            kept = _Kept(compile_pattern(pattern))
        if len(self._kept) >= PATTERNS_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[pattern] = kept
        if topics is not self._topics:
            self._topics = topics
            self._names = frozenset(topics)
        names = self._names
        if kept.met is not names:
            matches = kept.compiled.fullmatch
            fresh = {name for name in names - kept.met if matches(name)}
            kept.matched = (kept.matched & names) | fresh
            kept.met = names
        return kept.matched
