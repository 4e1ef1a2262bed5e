"""What the terminal shows while it happens: a few bars and figures on a tty, a line every other second in a pipe."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, NamedTuple, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.timeline import Timeline, percentile

LINE_SECONDS: Final = 2.0
FRAMES_PER_SECOND: Final = 4


class Now(NamedTuple):
    """How things stand."""

    doing: str
    written: int
    results: int
    goal: int
    """Events that will be written; 0 if nobody knows."""
    brokers: dict[int, bool]
    """Which of them are alive."""


class View:
    """Shows how things stand until the `with` block ends, and `say` what happens."""

    def __init__(self, console: Console, timeline: Timeline, look: Callable[[], Now]) -> None:
        self._console, self._timeline, self._look = console, timeline, look
        self._live: Live | None = None
        self._stopping = threading.Event()
        self._lines = threading.Thread(target=self._print_lines, name="view", daemon=True)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(
                console=self._console,
                get_renderable=self._picture,
                refresh_per_second=FRAMES_PER_SECOND,
                transient=True,
            )
            self._live.start()
        else:
            self._lines.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._live is not None:
            self._live.stop()
        if self._lines.is_alive():
            self._lines.join()

    def say(self, text: str) -> None:
        """One line that stays."""
        self._console.print(Text(f"{self._timeline.now:6.1f} s  {text}"), soft_wrap=True)

    def _print_lines(self) -> None:
        while not self._stopping.wait(LINE_SECONDS):
            now, timeline = self._look(), self._timeline
            if now.written:
                written, results = timeline.rate(timeline.written), timeline.rate(timeline.results)
                alive = " ".join(str(number) for number, alive in now.brokers.items() if alive)
                self.say(
                    f"  written {now.written:,} ({written:,.0f}/s), results {now.results:,} ({results:,.0f}/s), "
                    f"lag {timeline.lag:,}, brokers {alive}"
                )

    def _picture(self) -> RenderableType:
        now, timeline = self._look(), self._timeline
        bars = Table.grid(padding=(0, 2))
        total = max(now.goal, now.written, 1)
        for name, count, counts in (
            ("written", now.written, timeline.written),
            ("results", now.results, timeline.results),
        ):
            bars.add_row(
                name, ProgressBar(total, count, width=40), f"{count:>11,}", f"{timeline.rate(counts):>9,.0f} events/s"
            )
        recent = timeline.latencies_ms.get(int(timeline.now) - 1, [])
        brokers = Text("brokers  ")
        for number, alive in now.brokers.items():
            brokers.append(f" {number} {'up' if alive else 'dead'} ", "black on green" if alive else "white on red")
            brokers.append(" ")
        brokers.append(f" lag {timeline.lag:,}   event to result {percentile(recent, 0.5) / 1000:.1f} s")
        return Group(Text(f"{timeline.now:6.1f} s  {now.doing}", "bold"), bars, brokers)
