"""Keeps Spark's worker processes quick.

After each task and each question PySpark's workers look for garbage among all objects of the process. With the kernels
loaded these are more than a hundred thousand, and the look takes longer than a small task. Nearly all of them stay for
good, so they are set aside when new modules have come.
"""

from __future__ import annotations

import gc
import sys

_modules_seen = 0


def settle() -> None:
    """Called when what this process needs is loaded."""
    global _modules_seen
    if len(sys.modules) != _modules_seen:
        _modules_seen = len(sys.modules)
        gc.freeze()
