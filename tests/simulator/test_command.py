"""The command line: what it runs, what it says, and when it fails."""

from __future__ import annotations

import pytest

from simulator import command
from simulator.cluster_run import ClusterRun, RunResult
from simulator.options import Options, draw


def quick(seed: int) -> RunResult:
    options = Options(nodes=1, seconds=3, producers=1, readers=1, transactional_producers=0, group_members=0)
    return ClusterRun(seed, options, []).run()


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Short runs in this process; gives the seeds in the order in which they were run."""
    order: list[int] = []

    class Done:
        def __init__(self, result: RunResult) -> None:
            self._result = result

        def result(self) -> RunResult:
            return self._result

    class Pool:
        def __init__(self, max_workers: int) -> None:
            assert max_workers == 1

        def __enter__(self) -> Pool:
            return self

        def __exit__(self, *failure: object) -> None:
            pass

        def submit(self, function: object, seed: int) -> Done:
            order.append(seed)
            return Done(quick(seed))

    monkeypatch.setattr(command, "ProcessPoolExecutor", Pool)
    return order


def test_many_seeds_are_run_the_longest_first_and_each_tenth_twice(
    one_process: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--first", "9", "--seeds", "3", "--jobs", "1"]) == 0
    assert sorted(one_process) == [9, 10, 10, 11]
    lengths = [draw(seed).seconds * draw(seed).machines for seed in one_process]
    assert lengths == sorted(lengths, reverse=True)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("3 seeds, 4 runs, ")
    assert "times as fast as time" in last


def test_too_few_are_below_the_floor(one_process: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--first", "11", "--seeds", "1", "--jobs", "1", "--floor"]) == 1
    assert "TOO SLOW: 1 seeds and 0.0 simulated hours" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seeds", "hours", "seconds", "enough"),
    [(100, 10.0, 300.0, True), (99, 10.0, 300.0, False), (100, 9.9, 300.0, False), (100, 10.0, 301.0, False)],
)
def test_the_floor_is_seeds_and_hours_in_time(seeds: int, hours: float, seconds: float, enough: bool) -> None:
    assert (command.below_floor(seeds, hours, seconds) is None) is enough


def test_100_seeds_are_10_hours() -> None:
    """What the floor asks for is what the first seeds are: nothing is left out to be quick."""
    assert sum(draw(seed).seconds for seed in range(command.FLOOR_SEEDS)) / 3600 > 9.5
