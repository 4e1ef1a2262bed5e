"""Prometheus' text format, version 0.0.4: a family of samples, its type and its help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Literal, NamedTuple, TypeAlias

LINES_PER_PIECE: Final = 200

Labels: TypeAlias = tuple[tuple[str, str], ...]


class Family(NamedTuple):
    """A metric, and how its samples are written. A counter's name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge", "untyped"]
    help: str

    def header(self) -> str:
        """The lines that come before the samples, once per page."""
        return f"# HELP {self.name} {_escaped_help(self.help)}\n# TYPE {self.name} {self.kind}\n"

    def alone(self, value: float) -> str:
        """The whole family where there is one sample without labels."""
        return f"{self.header()}{self.name} {number(value)}\n"

    def samples(self, samples: Iterable[tuple[Labels, float]]) -> str:
        """The whole family where there are a few samples."""
        lines = [f"{self.name}{{{label_text(labels)}}} {number(value)}\n" for labels, value in samples]
        return self.header() + "".join(lines)


def joined(lines: Iterator[str]) -> Iterator[str]:
    """Lines in pieces that take a moment each."""
    while piece := "".join(islice(lines, LINES_PER_PIECE)):
        yield piece


def label_text(labels: Labels) -> str:
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels)


def escaped(value: str) -> str:
    """A label's value; half a surrogate pair, which UTF-8 has not, becomes a question mark."""
    if value.isascii() and value.isprintable() and "\\" not in value and '"' not in value:
        return value
    clean = value.encode("utf-8", "replace").decode()
    return clean.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def number(value: float) -> str:
    """An integer keeps all its digits; a flag is 0 or 1."""
    return str(int(value)) if isinstance(value, int) else repr(value)


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
