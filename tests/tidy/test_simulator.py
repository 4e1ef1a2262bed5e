"""The simulator lives from its seed alone, and what is shipped does not know it."""

from __future__ import annotations

import pytest

from tests.tidy.sources import Source, Violation, imports, report, shipped_sources
from tests.tidy.tree import python_sources

BANNED_MODULES = frozenset(
    {"time", "datetime", "secrets", "threading", "socket", "select", "selectors", "subprocess", "os", "concurrent"}
    | {"multiprocessing", "tempfile", "pathlib", "numba", "pytest", "tests"}
)
EDGES = ("simulator.command", "simulator.__main__")
"""Where a person starts it: these count seconds, start processes and write files."""


def check_simulator(source: Source) -> list[Violation]:
    if source.module in EDGES:
        return []
    return [
        source.violation(found.line, f"{found.name}: a run may depend on its seed only")
        for found in imports(source)
        if found.name.split(".")[0] in BANNED_MODULES or found.name.startswith("uuid.uuid")
    ]


def test_runs_depend_on_their_seed_only() -> None:
    simulator = [source for source in python_sources() if source.path.startswith("simulator/")]
    assert simulator
    found = [violation for source in simulator for violation in check_simulator(source)]
    assert not found, report(found)


def test_nothing_that_is_shipped_knows_the_simulator() -> None:
    found = [
        source.violation(found.line, "what is shipped may not import the simulator")
        for source in shipped_sources()
        for found in imports(source)
        if found.name.split(".")[0] == "simulator"
    ]
    assert not found, report(found)


@pytest.mark.parametrize("code", ["import time", "from os import urandom", "from uuid import uuid4", "import numba"])
def test_what_is_banned_is_found(code: str) -> None:
    assert check_simulator(Source.parse("simulator/disk.py", code))
    assert not check_simulator(Source.parse("simulator/command.py", code))
