"""Which options a data frame's topics were opened with, read out of its plan.

Spark tells nobody. A classic session has the plan in Java; a session of Spark Connect has the message that it will
send. Either way only what was given to `.option(...)` is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMATS: Final = ("ottla", "kafka")
SERVERS: Final = "kafka.bootstrap.servers"
_OPTION_GETTERS: Final = ("options", "extraOptions")
"""What Java calls them in a plan of a batch, and of a stream."""


def options_of_source(df: DataFrame) -> dict[str, str]:
    """The options of the first source of the frame that reads topics, with keys in lower case; none if it has none."""
    found = _classic(df) if hasattr(df, "_jdf") else _connect(df)
    for options in found:
        given = {key.lower(): value for key, value in options.items()}
        if SERVERS in given:
            return given
    return {}


def _classic(df: Any) -> Iterator[dict[str, str]]:
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    for place in range(leaves.size()):
        leaf = leaves.apply(place)
        names = {method.getName() for method in leaf.getClass().getMethods()}
        for getter in _OPTION_GETTERS:
            if getter in names:
                options = getattr(leaf, getter)()
                yield dict(options.asCaseSensitiveMap()) if hasattr(options, "asCaseSensitiveMap") else {}


def _connect(df: Any) -> Iterator[dict[str, str]]:
    message = df._plan.to_proto(df.sparkSession.client)
    for found in _messages(message):
        if found.DESCRIPTOR.full_name == "spark.connect.Read.DataSource" and found.format in FORMATS:
            yield dict(found.options)


def _messages(message: Any) -> Iterator[Any]:
    """A protobuf message and all that are in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        inner: Iterable[Any] = [value] if hasattr(value, "ListFields") else value
        for each in inner:
            yield from _messages(each)
