"""The files of the repository, without what tools leave in it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.sources import ROOT, Source

FOLDERS = (".ci", "bench", "chaos", "demo", "docs", "examples", "simulator", "src", "tests")


def files() -> Iterator[Path]:
    """Files at the top and in the folders that we keep, in a stable order."""
    yield from sorted(path for path in ROOT.iterdir() if path.is_file())
    for folder in FOLDERS:
        yield from sorted(
            path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts
        )


def text_files() -> Iterator[tuple[str, str]]:
    """Path and content of every file that is text."""
    for path in files():
        try:
            yield path.relative_to(ROOT).as_posix(), path.read_text("utf-8")
        except UnicodeDecodeError:
            continue


@cache
def python_sources() -> tuple[Source, ...]:
    return tuple(Source.parse(path, text) for path, text in text_files() if path.endswith(".py"))


def unit_tests() -> Iterator[str]:
    for path in sorted((ROOT / "tests" / "unit").rglob("*.py")):
        yield path.relative_to(ROOT).as_posix()
