"""The command line of chaos runs.

    python -m chaos --seconds 60 --seed 7     faults for a minute, then the full read
    python -m chaos --gaps                    how long nothing is acknowledged when a leader is killed, or restarted

The last line is the figure. The exit code is 1 if a run found something, or a gap is longer than it may be.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from pathlib import Path

from chaos.gaps import measure_gaps
from chaos.run import ChaosRun, Result


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Three brokers, real clients, and faults.")
    parser.add_argument("--seconds", type=float, default=60, help="for how long there are faults")
    parser.add_argument("--seed", type=int, default=None, help="which faults; drawn if not given")
    parser.add_argument("--keep", action="store_true", help="keep data and logs though nothing was found")
    parser.add_argument("--gaps", action="store_true", help="measure gaps between acknowledgements instead")
    chosen = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
    failed = True
    try:
        if chosen.gaps:
            failed = not measure_gaps(directory, _say)
        else:
            seed = random.randrange(1 << 16) if chosen.seed is None else chosen.seed
            failed = report(ChaosRun(seed, chosen.seconds, directory, _say).run(), directory)
    finally:
        if not failed and not chosen.keep:
            shutil.rmtree(directory, ignore_errors=True)
    return int(failed)


def report(result: Result, directory: Path) -> bool:
    """Print it; True if something was found."""
    for reason, count in sorted(result.failures.items()):
        _say(f"  clients were told {count} times: {reason}")
    for finding in result.findings:
        _say(f"  FOUND {finding}")
    if result.findings:
        _say(f"  data and logs are in {directory}; run it again: make chaos SEED={result.seed}")
    _say(result.figure())
    return bool(result.findings)


def _say(text: str) -> None:
    print(text, flush=True)
