"""The command line of the demo."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from demo.conductor import Conductor, Failed, Plan
from demo.interrupts import interrupting
from demo.picture import draw
from demo.tables import measures_table, streams_table
from demo.waiting import TooLate

AGREES, DISAGREES, FAILED, INTERRUPTED = 0, 1, 2, 130
PICTURE: Final = Path(__file__).resolve().parents[1] / ".demo" / "demo.png"
ABOUT: Final = """\
A website's activity, its services' logs and their metrics flow into a cluster of three brokers. A Spark job
reads them and writes results, exactly once. In the middle a broker is killed with kill -9, and brought back later.
In the end every event must have exactly one result: the counts are compared, and so is every single number.

It takes about a minute and a half, and ends by itself. With --keep it goes on until Ctrl-C, and compares then.
The exit code is 0 if everything agrees, 1 if something does not, 2 if the demo could not be run.
"""


def main(arguments: list[str]) -> int:
    chosen = _parser().parse_args(arguments)
    plan = Plan(chosen.seconds, chosen.rate, chosen.down, chosen.limit, chosen.seed, chosen.keep)
    console = Console()
    try:
        with interrupting(), _directory(chosen.data) as directory:
            return _play(plan, directory, chosen.plot, console)
    except KeyboardInterrupt:
        console.print("ended before there was anything to compare")
        return INTERRUPTED
    except (Failed, TooLate, OSError) as error:
        console.print(Text(f"failed: {error}"), soft_wrap=True)
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m demo", description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usual = Plan()
    add = parser.add_argument
    add("--keep", action="store_true", help="go on until Ctrl-C, then compare")
    add("--seconds", type=_positive, default=usual.seconds, help="how long events flow (%(default)g)")
    add("--rate", type=_positive, default=usual.rate, help="events a second, of all kinds (%(default)g)")
    add("--down", type=_positive, default=usual.down_seconds, help="seconds for which the broker is dead (%(default)g)")
    add("--limit", type=_positive, default=usual.limit_seconds, help="give up after so many seconds (%(default)g)")
    add("--seed", type=int, default=usual.seed, help="other events for another number (%(default)d)")
    add("--plot", type=Path, default=PICTURE, metavar="FILE", help="where the picture goes (.demo/demo.png)")
    add("--data", type=Path, metavar="DIR", help="keep data, logs and checkpoint there; a new or an empty directory")
    return parser


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: a number above 0")
    return value


@contextlib.contextmanager
def _directory(wanted: Path | None) -> Iterator[Path]:
    """Where everything lies: a directory that goes in the end, or the one that was asked for."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        if any(wanted.iterdir()):
            raise Failed(f"--data {wanted}: there is something in it already")
        yield wanted.resolve()
        return
    made = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _play(plan: Plan, directory: Path, plot: Path, console: Console) -> int:
    with Conductor(plan, directory, console) as conductor:
        wrong = conductor.run()
    timeline = conductor.timeline
    console.print(streams_table(conductor.truths, conductor.seen))
    console.print(measures_table(timeline, conductor.measured))
    verdict = "something disagrees" if wrong else "nothing lost, nothing twice"
    if draw(plot, timeline, f"{timeline.written.total():,} events, a broker killed: {verdict}"):
        console.print(Text(f"picture: {plot}"), soft_wrap=True)
    else:
        console.print("no picture: matplotlib is not installed (pip install matplotlib)")
    for complaint in wrong:
        console.print(Text(f"wrong: {complaint}", "red"), soft_wrap=True)
    if not wrong:
        console.print("Every event has exactly one result: nothing lost, nothing twice.", soft_wrap=True)
    return DISAGREES if wrong else AGREES


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
