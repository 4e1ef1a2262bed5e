"""Results on standard output: a table for people, tab-separated lines for tools, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.cli.options import Output

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, object]

_TEXT_WIDTH_MIN: Final = 12
"""Text is folded where a terminal is narrow, but not to less than this."""
_GAP: Final = 3
"""Between two columns of a table."""


def write_rows(rows: Sequence[Row], columns: Sequence[str], output: Output, *, title: str | None = None) -> None:
    """Rows with these columns. JSON is one array, with whatever else the rows hold."""
    if output is Output.JSON:
        write_json(list(rows))
    elif output is Output.PLAIN:
        sys.stdout.write("".join("\t".join(text(row.get(column)) for column in columns) + "\n" for row in rows))
    else:
        _write_table(rows, columns, title)


def write_pairs(pairs: Row, output: Output, *, title: str | None = None) -> None:
    """One thing's properties."""
    if output is Output.JSON:
        write_json(pairs)
    elif output is Output.PLAIN:
        sys.stdout.write("".join(f"{key}\t{text(value)}\n" for key, value in pairs.items()))
    else:
        _write_table([{"": key, " ": value} for key, value in pairs.items()], ("", " "), title, header=False)


def write_json(value: object) -> None:
    """One JSON document on one or more lines."""
    document = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    # A name may come from bytes that are no UTF-8: they are written as JSON's own escapes.
    sys.stdout.write(document.encode("utf-8", "backslashreplace").decode() + "\n")


def text(value: object) -> str:
    """A value as people and tools read it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(text(item) for item in value)
    return str(value)


def size_text(size_bytes: int) -> str:
    """Bytes in the unit that suits them."""
    if size_bytes < 0:
        return "?"
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def _write_table(rows: Sequence[Row], columns: Sequence[str], title: str | None, *, header: bool = True) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=header, pad_edge=False)
    width = 0
    for column in columns:
        numeric = bool(rows) and all(isinstance(row.get(column), int) for row in rows)
        longest = max((len(text(row.get(column))) for row in rows), default=0)
        needed = max(longest if numeric else min(longest, _TEXT_WIDTH_MIN), len(column) if header else 0)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold", min_width=needed)
        width += needed + _GAP
    for row in rows:
        table.add_row(*(Text(text(row.get(column))) for column in columns))
    print_table(table, width)


def print_table(table: Table, width_min: int) -> None:
    """On the whole terminal. One too narrow for the table wraps its lines: a number that is cut up is none any more."""
    from rich.console import Console

    console = Console(file=sys.stdout)
    console.width = max(console.width, width_min)
    console.print(table)
