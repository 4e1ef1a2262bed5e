"""The work of `ottla produce`: lines to records to a producer, with a count and a rate for whoever watches."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from ottla.cli.failures import CommandError, Exit
from ottla.cli.output import size_text
from ottla.cli.record_input import Headers, InputRecord, LineReader, read_chunks
from ottla.client.errors import NotFoundError
from ottla.client.producer import Producer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProductionBar:
    """Records and rate on standard error while a terminal watches; silent otherwise."""

    def __init__(self, progress: Progress | None, task: TaskID | None) -> None:
        self._progress = progress
        self._task = task

    def advance(self, records: int, input_bytes: int) -> None:
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=input_bytes, records=f"{records:,}")


@contextmanager
def production_bar(visible: bool, input_bytes_total: int | None) -> Iterator[ProductionBar]:
    """A bar that knows the end if the input's size is known, else one that only counts."""
    if not visible:
        yield ProductionBar(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (
        BarColumn(),
        TextColumn("{task.fields[records]} records"),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield ProductionBar(progress, progress.add_task("produce", total=input_bytes_total, records="0"))


class Production:
    """Sends the lines of one input, and remembers how much it was."""

    def __init__(
        self,
        producer: Producer,
        topic: str,
        reader: LineReader,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._reader = reader
        self._key = key
        self._headers = headers
        self._partition = partition
        self._started_at = time.monotonic()
        self._lines = 0
        self.input_bytes = 0

    def run(self, descriptor: int, bar: ProductionBar, read: Callable[[int, int], bytes] = os.read) -> None:
        """Send every line. What has come is sent at once when no more is waiting, so that a person sees it arrive."""
        for lines in read_chunks(descriptor, read):
            for line in lines:
                self._send(line)
            bar.advance(self._lines, self.input_bytes)
            if not _more_waits(descriptor):
                self._producer.flush()

    def summary(self) -> str:
        """How much arrived, and how fast."""
        seconds = max(time.monotonic() - self._started_at, 0.001)
        records = self._producer.delivered_records
        plural = "" if records == 1 else "s"
        return (
            f"{records:,} record{plural} to {self._topic} in {seconds:.2f} s "
            f"({records / seconds:,.0f} records/s, {size_text(int(self.input_bytes / seconds))}/s)"
        )

    def _send(self, line: bytes) -> None:
        self._lines += 1
        self.input_bytes += len(line) + 1
        try:
            self._send_record(self._reader.parse(line))
        except ValueError as error:
            self._refuse(str(error), Exit.FAILED)
        except NotFoundError as error:
            self._refuse(str(error), Exit.NOT_FOUND)

    def _send_record(self, record: InputRecord) -> None:
        self._producer.send(
            self._topic,
            record.value,
            key=self._key if record.key is None else record.key,
            headers=self._headers + record.headers,
            partition=self._partition if record.partition is None else record.partition,
            timestamp_ms=record.timestamp,
        )

    def _refuse(self, reason: str, exit_code: Exit) -> NoReturn:
        """Stop at this line with all before it sent, so that whoever mends it knows where to go on."""
        self._producer.flush()
        before = self._lines - 1
        sent = f" (the {before:,} before it {'is' if before == 1 else 'are'} sent)" if before else ""
        raise CommandError(f"line {self._lines} of the input: {reason}{sent}", exit_code)


def _more_waits(descriptor: int) -> bool:
    """Whether a read would return at once. A regular file always has more, until it ends."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(0))


def watched() -> bool:
    """Whether somebody sees a progress bar: not where lines are typed by hand."""
    return sys.stderr.isatty() and not sys.stdin.isatty()
