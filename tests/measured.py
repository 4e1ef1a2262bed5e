"""What work costs. Other threads of the test's process can only add to a figure, so it is the least of some."""

from __future__ import annotations

import contextlib
import gc
import os
import time
import tracemalloc
from collections.abc import Callable

TRIES = 5


def least(measure: Callable[[], float], enough: float) -> float:
    """The least of some measurements; the first one below `enough` ends them."""
    found = measure()
    for _ in range(TRIES - 1):
        if found < enough:
            break
        found = min(found, measure())
    return found


def thread_seconds(work: Callable[[], object]) -> float:
    """The processor's time that the calling thread spends in `work`."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


def kept_bytes(work: Callable[[], object]) -> int:
    """The memory of what `work` returns."""
    gc.collect()
    tracemalloc.start()
    try:
        kept = work()
        gc.collect()
        found, _ = tracemalloc.get_traced_memory()
        del kept
        return found
    finally:
        tracemalloc.stop()


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that `work` holds at any time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def open_files() -> int:
    """How many files and sockets this process has open; 0 where the system does not say."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(OSError):
            return len(os.listdir(directory))
    return 0
