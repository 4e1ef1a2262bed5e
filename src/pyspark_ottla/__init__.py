"""Ottla for Spark: `spark.read.format("ottla")`, with no jar.

Spark finds this package by its name and asks for `DefaultSource`. It also imports every other package whose name begins
like this one, and one that fails hides all of them: so nothing happens here before it is asked for.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pyspark_ottla.source import DefaultSource

    return DefaultSource
