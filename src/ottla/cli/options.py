"""Options that several commands share, and the client that they lead to."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from ottla.cli.failures import UsageError, say
from ottla.client.cluster import Cluster
from ottla.client.errors import ClientError
from ottla.client.settings import ClientSettings


class Output(StrEnum):
    """How results are written."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"


DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
OUTAGE_SILENCE_SECONDS: Final = 15.0
"""Between two words about the same outage."""

INPUT_FILE_BYTES_MAX: Final = 64 << 20

Bootstrap: TypeAlias = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="OTTLA_BOOTSTRAP",
        metavar="HOST:PORT[,...]",
        help="Where to find the cluster.",
        show_default=True,
    ),
]
OutputOption: TypeAlias = Annotated[
    Output | None,
    typer.Option(
        "--output",
        "-o",
        help="How to write the result; a table on a terminal and plain, tab-separated lines otherwise.",
        show_default=False,
    ),
]
ConfigPairs: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A config by Kafka's name; may be given several times."),
]


def connect(bootstrap: str) -> Cluster:
    """A cluster for the address that was given. Nothing is sent yet."""
    cluster = Cluster(ClientSettings.of(bootstrap))
    cluster.on_unreachable = Outage().tell
    return cluster


class Outage:
    """Says that a cluster is gone and that somebody waits for it, now and then and not with every attempt."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._silent_until = float("-inf")

    def tell(self, error: ClientError) -> None:
        now = self._clock()
        if now >= self._silent_until:
            self._silent_until = now + OUTAGE_SILENCE_SECONDS
            say(f"{error} (it has answered before, so this goes on trying for a while)")


def chosen_output(output: Output | None) -> Output:
    """What was asked for, else what suits the place where the output goes."""
    if output is not None:
        return output
    return Output.TABLE if sys.stdout.isatty() else Output.PLAIN


def parse_pairs(pairs: Sequence[str] | None, option: str) -> dict[str, str]:
    """`key=value` texts as a mapping; a UsageError names the one that is none."""
    parsed: dict[str, str] = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"{option} {pair!r}: write it as KEY=VALUE")
        parsed[key.strip()] = value.strip()
    return parsed


def read_input_file(path: Path, option: str) -> bytes:
    """The file that an option names; a UsageError says why it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(INPUT_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{option}: cannot read {path}: {error.strerror}") from error
    if len(content) > INPUT_FILE_BYTES_MAX:
        raise UsageError(f"{option} {path}: larger than {INPUT_FILE_BYTES_MAX >> 20} MB")
    return content


def choose(given: Sequence[str] | None, known: Sequence[str], option: str) -> list[str]:
    """What was given, spelt as the cluster spells it; a UsageError names what is not known. A filter with a typo would
    find nothing, and look as if there were nothing."""
    spelling = {name.lower(): name for name in known}
    for text in given or ():
        if text.lower() not in spelling:
            raise UsageError(f"{option} {text!r}: choose one of {', '.join(known)}")
    return [spelling[text.lower()] for text in given or ()]
