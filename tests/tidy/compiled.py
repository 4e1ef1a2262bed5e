"""Compiled modules as the rules see them: by their lines, since no parser of Python reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.layers import ALLOWED, layer_of, may_import
from tests.tidy.shape import FILE_LINES_MAX
from tests.tidy.sources import ROOT, SRC, Import, Violation, module_name

IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))")
WORDS_OF_OURS = re.compile(r"^ottla\b")


def compiled_sources() -> list[Path]:
    return sorted(path for path in SRC.rglob("*") if path.suffix in (".pyx", ".pxd"))


def check_compiled(path: str, text: str) -> Iterator[Violation]:
    """Imports that the table of layers does not allow, and files that are too long."""
    lines = text.splitlines()
    if len(lines) > FILE_LINES_MAX:
        yield Violation(path, 1, f"{len(lines)} lines, at most {FILE_LINES_MAX}")
    layer = layer_of(module_name(path))
    if layer is None:
        yield Violation(path, 1, "has no layer")
        return
    for number, line in enumerate(lines, 1):
        found = IMPORT.match(line)
        name = (found[1] or found[2]) if found else ""
        if WORDS_OF_OURS.match(name) and not may_import(layer, Import(name, number, types_only=False)):
            allowed = ", ".join(ALLOWED[layer]) or "nothing of ours"
            yield Violation(path, number, f"{layer} may not import {name}; it may import {allowed}")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()
