"""Spark with Ottla, for notebooks and scripts.

    from ottla import spark
    session = spark.session()
    spark.read("orders").show()

`session` starts a local Spark with settings that suit it, and `prepare` is for those who start their own. `read` and
`stream` open topics, `from_json_topic` makes typed columns of their values, and `LagListener` tells how far queries
are. The source and the sink themselves are in `pyspark_ottla`, and need none of this.
"""

from __future__ import annotations

from typing import Any

__all__ = ["LagListener", "from_json_topic", "infer_json_schema", "prepare", "read", "session", "stream"]


def __getattr__(name: str) -> Any:
    if name in ("prepare", "session", "read", "stream"):
        from ottla.spark import sessions

        return getattr(sessions, name)
    if name in ("from_json_topic", "infer_json_schema"):
        from ottla.spark import json_topics

        return getattr(json_topics, name)
    if name == "LagListener":
        from ottla.spark.listener import LagListener

        return LagListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
