"""Findings have colours where somebody sees and wants them."""

from __future__ import annotations

import sys

import pytest

from ottla.cli.doctor import print_finding
from ottla.cli.finding import ok


@pytest.mark.parametrize(
    ("variable", "value", "coloured"), [("NO_COLOR", "", True), ("NO_COLOR", "1", False), ("TERM", "dumb", False)]
)
def test_colours_are_for_terminals_that_want_them(
    variable: str, value: str, coloured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(variable, value)
    print_finding(ok("clock", "it ticks"))
    assert ("\x1b[" in capsys.readouterr().out) is coloured
