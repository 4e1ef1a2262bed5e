"""Chaos meets brokers as anybody does, over sockets and signals, and what is shipped does not know it."""

from __future__ import annotations

import pytest

from tests.tidy.sources import Source, Violation, imports, report, shipped_sources
from tests.tidy.tree import python_sources

BANNED_MODULES = frozenset({"ottla", "pyspark_ottla", "bench", "tests", "pytest"})
SHARED = ("simulator.history.", "simulator.findings.", "simulator.checkers.")
"""What the simulator and chaos have in common: histories, and the judgement of them."""
PORTS = "ottla.cli.free_ports"
"""Which port a broker can have is not asked of a broker."""

IN_A_BROKER = "chaos/stepped.py"
"""Runs in a broker's process, in place of its own main module, and is imported by nobody."""


def check_chaos(source: Source) -> list[Violation]:
    if source.path == IN_A_BROKER:
        return []
    return [
        source.violation(found.line, f"{found.name}: chaos reaches brokers from outside only")
        for found in imports(source)
        if (found.name.split(".")[0] in BANNED_MODULES and not found.name.startswith(PORTS))
        or found.name.startswith("chaos.stepped")
        or (found.name.startswith("simulator.") and not found.name.startswith(SHARED))
    ]


def test_chaos_reaches_brokers_from_outside() -> None:
    chaos = [source for source in python_sources() if source.path.startswith("chaos/")]
    assert chaos
    found = [violation for source in chaos for violation in check_chaos(source)]
    assert not found, report(found)


def test_nothing_that_is_shipped_knows_chaos() -> None:
    found = [
        source.violation(found.line, "what is shipped may not import chaos")
        for source in shipped_sources()
        for found in imports(source)
        if found.name.split(".")[0] == "chaos"
    ]
    assert not found, report(found)


@pytest.mark.parametrize(
    "code",
    ["from ottla.broker import Broker", "from simulator.node import Node", "import tests", "import chaos.stepped"],
)
def test_what_is_banned_is_found(code: str) -> None:
    assert check_chaos(Source.parse("chaos/run.py", code))
