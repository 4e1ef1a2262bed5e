from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from pyspark_ottla import workers


@pytest.fixture(autouse=True)
def _unfrozen() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_is_loaded_is_set_aside_once_and_again_when_more_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_modules_seen", 0)
    workers.settle()
    frozen = gc.get_freeze_count()
    assert frozen > 1000

    # Many: what was set aside may still be freed, so that the count goes down a little by itself.
    kept = [[number] for number in range(100_000)]
    workers.settle()
    assert gc.get_freeze_count() <= frozen

    monkeypatch.setitem(sys.modules, "a_module_that_came_later", ModuleType("a_module_that_came_later"))
    workers.settle()
    assert gc.get_freeze_count() >= frozen + len(kept) / 2
