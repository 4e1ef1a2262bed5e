"""What runs in the simulator takes nothing from the order of a set."""

from __future__ import annotations

import pytest

from tests.tidy.order import check_order
from tests.tidy.sources import Source, report
from tests.tidy.tree import python_sources

CORE = "src/ottla/core/controller/controller.py"


def test_nothing_that_is_replayed_reads_a_set_in_its_order() -> None:
    found = [violation for source in python_sources() for violation in check_order(source)]
    assert not found, report(found)


@pytest.mark.parametrize(
    "code",
    [
        "for name in {'a', 'b'}:\n    send(name)",
        "def send(names: frozenset[str]):\n    return [name for name in names]",
        "def send(names):\n    wanted = set(names)\n    return list(wanted)",
        "def send(before, after):\n    for name in before.keys() | after.keys():\n        yield name",
        "class A:\n    def __init__(self):\n        self._tasks: set[Task] = set()\n"
        "    def close(self):\n        for task in self._tasks:\n            task.cancel()",
        "class A:\n    names: frozenset[str] | None\n    def text(self):\n        return ', '.join(self.names)",
        "def send(names: set[str], more):\n    return gather(*names.union(more))",
        "def send(names: set[str]):\n    return names.pop()",
        "def send(names: set[str]):\n    return max(names, key=len)",
    ],
)
def test_an_order_that_differs_is_found(code: str) -> None:
    assert list(check_order(Source.parse(CORE, code)))
    assert list(check_order(Source.parse("simulator/network.py", code)))
    assert not list(check_order(Source.parse("src/ottla/cli/topic.py", code)))


@pytest.mark.parametrize(
    "code",
    [
        "for name in sorted({'a', 'b'}):\n    send(name)",
        "def send(names: frozenset[str]):\n    return any(name in KNOWN for name in names)",
        "def send(names: set[str]):\n    return {len(name) for name in names} | {*names}",
        "def send(names):\n    wanted = dict.fromkeys(names)\n    return list(wanted)",
        "def send(numbers: set[int]):\n    return list(numbers)",
        "def send(names: set[str]):\n    ...\ndef other(names: list[str]):\n    return list(names)",
        "def send(before, after):\n    return sorted(before.keys() - after.keys())",
        "def send(names: set[str], tasks: dict[str, int]):\n    names.discard('a')\n    return tasks.pop('a')",
    ],
)
def test_what_does_not_mind_the_order_passes(code: str) -> None:
    found = list(check_order(Source.parse(CORE, code)))
    assert not found, report(found)
