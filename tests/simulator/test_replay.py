"""A seed takes the same course in every process, whatever the hashes of strings and the addresses of objects are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from simulator.cluster_run import ClusterRun
from simulator.faults import Fault
from simulator.options import Options

ROOT = Path(__file__).resolve().parents[2]
SEED = 3
BUSY = Options(
    nodes=3,
    replicas=3,
    partitions=4,
    seconds=24,
    spare_broker=True,
    compacts=True,
    transactional_producers=3,
    seconds_between_transactions=0.5,
    group_members=2,
    sessionless_readers=1,
    classic_members=1,
    seconds_between_changes=1.0,
)
STOPS = [Fault(second * 1_000_000, "stop", second % 3, 500_000, 0) for second in range(3, 24, 4)]
"""A node that stops cancels and closes all that it has many of."""


def course() -> str:
    """What came of the run, in one line; the digest has every frame and its time."""
    result = ClusterRun(SEED, BUSY, STOPS).run()
    return f"{result.digest} {result.events} {result.acknowledged} {result.counts} {result.findings}"


def course_elsewhere(hash_seed: str) -> str:
    """The same, in a process of its own that hashes strings in its own way."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-m", __name__],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def test_a_seed_takes_the_same_course_whatever_the_hashes_of_strings_are() -> None:
    first, second = (course_elsewhere(hash_seed) for hash_seed in ("1", "2"))
    assert "done: commit" in first
    assert first == second


if __name__ == "__main__":
    print(course())
