"""A simulated crash drops a node with everything that it was doing, coroutines in the middle of their work included.

Python complains when it finds them. In these tests that is what was asked for; garbage that is left is collected
before the next test, which must not be blamed for it.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
IGNORED = ("ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited:RuntimeWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for ignored in IGNORED:
                item.add_marker(pytest.mark.filterwarnings(ignored))


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    yield
    complain, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gc.unfreeze()  # A run has put aside what was there before it.
            gc.collect()
    finally:
        sys.unraisablehook = complain
