"""Results on standard output: a table for people, tab-separated lines for tools, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

from ottla.cli.options import Output

Row = Mapping[str, object]


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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, show_header=header, pad_edge=False)
    for column in columns:
        numeric = bool(rows) and all(isinstance(row.get(column), int) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(text(row.get(column))) for column in columns))
    Console(file=sys.stdout).print(table)
