"""A short chaos run, and the gaps that clients see when a broker goes. `make chaos` runs longer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chaos.faults import KINDS, plan
from chaos.gaps import KILL_SECONDS_MAX, GapMeasurement
from chaos.run import ChaosRun

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="who calls a proxy is asked of Linux")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_nothing_is_lost_under_faults(tmp_path: Path) -> None:
    said: list[str] = []
    result = ChaosRun(7, 20, tmp_path, said.append).run()
    story = "\n".join([*said, *map(str, result.findings)])
    assert not result.findings, story
    assert result.acknowledged > 1000, story
    assert result.transactions > 10, story
    assert result.copied > 100, story
    assert len(result.faults) >= 3, story


@pytest.mark.slow
def test_a_leader_that_is_killed_or_restarted_is_hardly_missed(tmp_path: Path) -> None:
    kills, restarts = GapMeasurement(tmp_path).measure([1])
    assert max(kills) < KILL_SECONDS_MAX, kills
    # On a machine that does nothing else at most 0.3 s; tests share theirs.
    assert max(restarts) < 1.0, restarts


def test_a_plan_has_every_kind_before_one_comes_again() -> None:
    faults = plan(7, 3, 60)
    assert {fault.kind for fault in faults[: len(KINDS)]} == set(KINDS)
    assert [str(fault) for fault in faults] == [str(fault) for fault in plan(7, 3, 60)]
    assert all(len(set(fault.nodes)) == KINDS[fault.kind].nodes for fault in faults)
