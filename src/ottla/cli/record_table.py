"""A table of records that grows as they come. Columns keep their widths: later rows stand under earlier ones."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ottla.cli.output import print_table
from ottla.cli.record_format import readable, readable_name, time_text
from ottla.client.consumer import ConsumedRecord

_PARTITION_WIDTH: Final = 5
_OFFSET_WIDTH: Final = 10
_TIME_WIDTH: Final = 24
_KEY_WIDTH_MAX: Final = 32
_GAP: Final = 2


class RecordTable:
    """Writes a header once and then rows, a long value over several lines."""

    def __init__(self, *, keys: bool, headers: bool) -> None:
        self._width = Console(file=sys.stdout).width
        self._keys = keys
        self._headers = headers
        self._header_written = False

    def write(self, records: Sequence[ConsumedRecord]) -> None:
        """Append these records."""
        table = self._table()
        for record in records:
            table.add_row(*self._cells(record))
        print_table(table, sum(column.width or 0 for column in table.columns) + _GAP * len(table.columns))
        self._header_written = True

    def _table(self) -> Table:
        table = Table(box=None, show_header=not self._header_written, padding=(0, _GAP, 0, 0), header_style="bold")
        table.add_column("part.", width=_PARTITION_WIDTH, justify="right")
        table.add_column("offset", width=_OFFSET_WIDTH, justify="right", overflow="fold")
        table.add_column("time", width=_TIME_WIDTH)
        side = min(_KEY_WIDTH_MAX, max(self._width // 5, 8))
        if self._keys:
            table.add_column("key", width=side, overflow="fold")
        if self._headers:
            table.add_column("headers", width=side, overflow="fold")
        table.add_column("value", width=self._value_width(side), overflow="fold")
        return table

    def _value_width(self, side: int) -> int:
        fixed = _PARTITION_WIDTH + _OFFSET_WIDTH + _TIME_WIDTH + 4 * _GAP
        sides = (side + _GAP) * (self._keys + self._headers)
        return max(self._width - fixed - sides, 10)

    def _cells(self, record: ConsumedRecord) -> list[Text]:
        cells = [
            Text(str(record.partition)),
            Text(str(record.offset)),
            Text(time_text(record.timestamp), style="dim"),
        ]
        if self._keys:
            cells.append(_content(record.key))
        if self._headers:
            cells.append(
                Text(", ".join(f"{readable_name(name)}={readable(content)}" for name, content in record.headers))
            )
        cells.append(_content(record.value))
        return cells


def _content(content: bytes | None) -> Text:
    return Text(readable(content), style="dim italic" if content is None else "")
