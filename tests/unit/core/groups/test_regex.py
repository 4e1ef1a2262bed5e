"""Patterns: whole names, RE2's syntax, bounds, and a cost that no pattern can drive up."""

from __future__ import annotations

import pytest

from ottla.core.groups import regex
from ottla.core.groups.regex import PATTERN_LENGTH_MAX, PATTERNS_KEPT_MAX, PatternMatches, compile_pattern
from ottla.model.errors import ApiError, ErrorCode
from tests.measured import least, thread_seconds


def topics(*names: str) -> dict[str, object]:
    return dict.fromkeys(names, object())


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("orders", {"orders"}),
        ("order", set()),
        ("orders.*", {"orders", "orders-eu", "orders-us"}),
        ("orders-(eu|us)", {"orders-eu", "orders-us"}),
        ("(?i)ORDERS", {"orders"}),
        (r"[\w]+", {"orders", "users"}),
        ("", set()),
    ],
)
def test_the_whole_name_must_match(pattern: str, matched: set[str]) -> None:
    names = topics("orders", "orders-eu", "orders-us", "users")
    assert PatternMatches().topics(pattern, names) == matched


@pytest.mark.parametrize("pattern", ["[", "(", "a**", "(?!x)", "(?<=x)y", r"(a)\1", "x{1001}", "\udcff", "(a{9}){999}"])
def test_what_re2_does_not_take_is_refused(pattern: str) -> None:
    with pytest.raises(ApiError) as refusal:
        compile_pattern(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_long_patterns_and_large_programs_are_refused() -> None:
    with pytest.raises(ApiError, match="longer than"):
        compile_pattern("a" * (PATTERN_LENGTH_MAX + 1))
    with pytest.raises(ApiError, match="instructions"):
        compile_pattern("(.*x){900}")
    assert compile_pattern("a" * 1000).fullmatch("a" * 1000)


def test_a_pattern_made_to_explode_costs_little() -> None:
    names = topics(*("a" * 240 + str(number) for number in range(100)))

    def match() -> None:
        for pattern in ("(a+)+$", "(a|a)*b", "(a?){150}a{150}", "(.*a){100}b", "(?:[ab]*a[ab]{200})c"):
            PatternMatches().topics(pattern, names)

    assert least(lambda: thread_seconds(match), 2) < 2


def test_only_names_that_came_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    class Compiled:
        def fullmatch(self, name: str) -> bool:
            tried.append(name)
            return name.startswith("a")

    monkeypatch.setattr(regex, "compile_pattern", lambda pattern: Compiled())
    matches = PatternMatches()
    assert matches.topics("a.*", topics("a1", "b")) == {"a1"}
    assert matches.topics("a.*", topics("a1", "b", "a2")) == {"a1", "a2"}
    assert matches.topics("a.*", topics("a2", "b")) == {"a2"}
    assert sorted(tried) == ["a1", "a2", "b"]


def test_no_more_patterns_are_kept_than_allowed() -> None:
    matches = PatternMatches()
    names = topics("t7")
    for number in range(PATTERNS_KEPT_MAX + 20):
        matches.topics(f"t{number}", names)
    assert len(matches._kept) == PATTERNS_KEPT_MAX
    assert matches.topics("t7", names) == {"t7"}
