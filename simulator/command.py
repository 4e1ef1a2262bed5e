"""The command line: one seed with everything about it, or many seeds and a figure.

- `python -m simulator --seed 7`: run it twice, compare; shrink it and write its trace if it fails.
- `python -m simulator --seeds 100`: 100 seeds on all processors.
- `python -m simulator --floor`: the same, and whether that is fast enough.

The last line is the figure. The exit code is 1 if a run found something, a replay differed, or it was too slow.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from simulator.cluster_run import ClusterRun, RunResult
from simulator.faults import plan
from simulator.options import draw
from simulator.picture import picture
from simulator.shrink import Shrinking
from simulator.trace_text import trace_text

OUTPUT: Final = Path(".sim")
REPLAY_EACH: Final = 10
"""Of many seeds each so-manieth is run twice, and all with --twice."""
SEEDS: Final = 40
FLOOR_SEEDS: Final = 100
FLOOR_HOURS: Final = 10
FLOOR_SECONDS: Final = 300
"""So many seeds and simulated hours in so much time, on two processors, are what --floor asks for."""


def run_seed(seed: int) -> RunResult:
    # What a process was about to await when it was killed.
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    options = draw(seed)
    return ClusterRun(seed, options, plan(seed, options)).run()


def run_twice(seed: int) -> tuple[RunResult, RunResult]:
    return run_seed(seed), run_seed(seed)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator", description="Simulated clusters, from seeds.")
    parser.add_argument("--seed", type=int, help="run this one, twice")
    parser.add_argument("--seeds", type=int, help=f"run so many: {SEEDS}, with --floor {FLOOR_SEEDS}")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="processes")
    parser.add_argument("--twice", action="store_true", help="run each seed twice and compare")
    parser.add_argument(
        "--floor",
        action="store_true",
        help=f"fail, too, if there are not {FLOOR_SEEDS} seeds and {FLOOR_HOURS} simulated hours in {FLOOR_SECONDS} s",
    )
    parser.add_argument("--trace", action="store_true", help="with --seed: write the trace though nothing fails")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        return one(chosen.seed, traced=chosen.trace)
    count = chosen.seeds if chosen.seeds is not None else FLOOR_SEEDS if chosen.floor else SEEDS
    seeds = range(chosen.first, chosen.first + count)
    return many(seeds, jobs=chosen.jobs, twice=chosen.twice, has_floor=chosen.floor)


def one(seed: int, *, traced: bool = False) -> int:
    """A seed with all that can be known of it."""
    began = time.monotonic()
    first, second = run_twice(seed)
    print(f"seed {seed} at commit {commit()}: {first.options}", flush=True)
    print("\n".join(f"  {fault}" for fault in first.faults) or "  no faults")
    if first.digest != second.digest:
        print(f"NOT REPLAYABLE: {first.digest}, then {second.digest}")
    if first.findings:
        report(first)
        write_trace(Shrinking(first).shrink())
    elif traced:
        write_trace(first)
    summary([first, second], time.monotonic() - began)
    return int(bool(first.findings) or first.digest != second.digest)


def many(seeds: range, *, jobs: int, twice: bool, has_floor: bool = False) -> int:
    """Many seeds, in several processes; a line for each that fails."""
    began = time.monotonic()
    results, failed, differing = [], [], []
    hours = 0.0
    for runs in _all(seeds, jobs, twice):
        results += runs
        first = runs[0]
        hours += first.simulated_us / 3.6e9
        if first.findings:
            failed.append(first.seed)
            report(first)
        if any(run.digest != first.digest for run in runs):
            differing.append(first.seed)
            print(f"seed {first.seed} is NOT REPLAYABLE: {' '.join(run.digest for run in runs)}", flush=True)
    seconds = time.monotonic() - began
    if failed or differing:
        print(f"FAILED: seeds {failed}; not replayable: {differing}; one: make sim SEED={(failed + differing)[0]}")
    slow = below_floor(len(seeds), hours, seconds) if has_floor else None
    if slow is not None:
        print(f"TOO SLOW: {slow}")
    summary(results, seconds)
    return int(bool(failed or differing or slow))


def below_floor(seeds: int, simulated_hours: float, seconds: float) -> str | None:
    """What is missing for the floor; None if nothing is."""
    if seeds >= FLOOR_SEEDS and simulated_hours >= FLOOR_HOURS and seconds <= FLOOR_SECONDS:
        return None
    return (
        f"{seeds} seeds and {simulated_hours:.1f} simulated hours in {seconds:.0f} s, "
        f"not {FLOOR_SEEDS} and {FLOOR_HOURS} in {FLOOR_SECONDS}"
    )


def _all(seeds: range, jobs: int, twice: bool) -> Iterator[list[RunResult]]:
    doubled = [seed for seed in seeds if twice or seed % REPLAY_EACH == 0]
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        # The longest first, so that at the end no process waits long for another.
        runs = [(seed, pool.submit(run_seed, seed)) for seed in sorted([*seeds, *doubled], key=_length, reverse=True)]
        for seed in seeds:
            yield [run.result() for number, run in runs if number == seed]


def _length(seed: int) -> int:
    """How much there is to do in a run, about."""
    options = draw(seed)
    return options.seconds * options.machines


def report(result: RunResult) -> None:
    print(f"seed {result.seed} FAILED at commit {commit()}: {result.options}")
    for finding in result.findings[:5]:
        print(f"  {finding}"[:1000], flush=True)


def write_trace(result: RunResult) -> None:
    """Run it again and write down everything, as text and as a picture."""
    run = ClusterRun(result.seed, result.options, result.faults, traced=True)
    again = run.run()
    until_us = again.findings[0].time_us if again.findings else again.simulated_us
    print(f"smallest run: {again.options}")
    print("\n".join(f"  {fault}" for fault in again.faults) or "  no faults")
    for finding in again.findings[:3]:
        print(f"  {finding}"[:1000])
    OUTPUT.mkdir(exist_ok=True)
    text, image = OUTPUT / f"{result.seed}.txt", OUTPUT / f"{result.seed}.svg"
    text.write_text(trace_text(run.room.trace, until_us, seconds=10))
    image.write_text(picture(run.room.trace, again.findings, until_us))
    print(f"trace: {text} and {image}")


def summary(results: list[RunResult], seconds: float) -> None:
    events, simulated_s = sum(run.events for run in results), sum(run.simulated_us for run in results) / 1e6
    acknowledged = sum(run.acknowledged for run in results)
    print(what_happened(results))
    print(
        f"{len({run.seed for run in results})} seeds, {len(results)} runs, {simulated_s / 3600:.2f} simulated hours, "
        f"{events:,} events, {acknowledged:,} acknowledged writes in {seconds:.1f} s: "
        f"{events / seconds:,.0f} events/s, {simulated_s / seconds:,.0f} times as fast as time",
        flush=True,
    )


def what_happened(results: list[RunResult]) -> str:
    """Everything that was counted, summed up."""
    total: Counter[str] = Counter()
    for result in results:
        total.update(result.counts)
    return "\n".join(f"  {count:>9,}  {name}" for name, count in sorted(total.items()))


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
