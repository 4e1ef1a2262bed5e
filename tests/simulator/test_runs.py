"""Whole runs: they pass, a seed gives the same run each time, and a failing one can be shrunk and shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from simulator.bugs.one_broker import ONE_BROKER
from simulator.chance import Chance
from simulator.cluster_run import ClusterRun
from simulator.faults import WEIGHTS, Fault, plan
from simulator.options import Options, draw
from simulator.picture import picture
from simulator.shrink import Shrinking
from simulator.trace_text import trace_text


@pytest.mark.parametrize("seed", [2, 7])
def test_a_seed_passes_and_is_the_same_run_each_time(seed: int) -> None:
    options = replace(draw(seed), seconds=60)
    first, second = (ClusterRun(seed, options, plan(seed, options)).run() for _ in range(2))
    assert first.findings == []
    assert first.acknowledged > 0
    assert (first.digest, first.events) == (second.digest, second.events)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_power_loss_right_after_the_first_start_takes_nothing_that_was_acknowledged(seed: int) -> None:
    """The name of a new data directory is on the medium before anything in it counts."""
    options = Options(nodes=1, seconds=15, seconds_between_sends=0.1, producers=1, readers=1)
    faults = [fault for fault in plan(seed, replace(options, seconds_between_faults=1.0)) if fault.kind == "power"]
    assert ClusterRun(seed, options, faults[:1]).run().findings == []


def test_a_disk_forgets_only_where_a_good_copy_is_left_that_the_cluster_believes() -> None:
    run = ClusterRun(1, Options(nodes=3, replicas=3, flush_each=False), [])
    first, second, _ = run.nodes
    assert run.may_lose_data(first)
    assert run.may_be_killed(first)
    second.is_unclean = True
    assert not run.may_lose_data(first)
    assert run.may_lose_data(second), "it is not believed anyway"
    assert run.may_be_killed(first), "a kill takes nothing"
    second.may_lack_data = True
    assert not run.may_be_killed(first), "nobody else is up and in sync"
    assert run.may_be_killed(second)
    synced = ClusterRun(1, Options(nodes=3, replicas=3, flush_each=True), [])
    synced.nodes[1].is_unclean = synced.nodes[1].may_lack_data = True
    assert synced.may_lose_data(synced.nodes[0])
    assert synced.may_be_killed(synced.nodes[0])


def test_faults_of_one_kind_do_not_depend_on_those_of_another() -> None:
    options = draw(3)
    faults = plan(3, options)
    assert faults == sorted(faults)
    assert {fault.kind for fault in faults} != {faults[0].kind}
    assert [fault for fault in plan(3, options) if fault.kind == "kill"] == [f for f in faults if f.kind == "kill"]


CHANGES = {
    "cancel a reassignment",
    "create a topic",
    "delete a topic",
    "elect leaders",
    "reassign",
    "remove a voter",
    "replace a broker",
    "set a config",
}
DONE = {
    "abort",
    "classic rebalance",
    "commit",
    "commit of ClassicMember",
    "commit of GroupMember",
    "commit with an offset",
    "compaction",
    "rotten disk replaced",
}


@pytest.mark.timeout(600)
def test_every_fault_and_every_operation_really_happens() -> None:
    """Over a few seeds: each kind of fault, each change that was asked for and made, each thing that clients do."""
    seen: Counter[str] = Counter()
    busy = replace(BUSY, seconds=60)
    rot = replace(BUSY, seconds=22, transactional_producers=0, group_members=0, classic_members=0, compacts=False)
    rot = replace(rot, seconds_between_changes=1.0)
    runs = [(seed, busy, one_of_each(seed, busy)) for seed in (1, 2, 3)]
    runs.append((2, rot, [Fault(5_000_000, "bit rot", 1, 300_000, 460263119)]))
    for seed, options, faults in runs:
        result = ClusterRun(seed, options, faults).run()
        assert result.findings == []
        seen.update(result.counts)
    wanted = {f"fault: {kind}" for kind in WEIGHTS} | {f"done: {name}" for name in DONE}
    wanted |= {f"change: {name}" for name in CHANGES}
    assert wanted - seen.keys() == set()


BUSY = Options(
    nodes=3,
    replicas=3,
    spare_broker=True,
    compacts=True,
    transactional_producers=2,
    classic_members=1,
    group_members=1,
    seconds_between_changes=1.5,
    seconds_between_sends=0.5,
)


def one_of_each(seed: int, options: Options) -> list[Fault]:
    """Every kind of fault, in an order and at nodes that the seed says."""
    rng = Chance(seed).stream("one of each")
    kinds = rng.sample(sorted(WEIGHTS), len(WEIGHTS))
    apart_us = options.seconds * 1_000_000 // len(kinds)
    return [
        Fault(number * apart_us, kind, rng.randrange(options.nodes), 300_000, rng.randrange(1 << 30))
        for number, kind in enumerate(kinds)
    ]


def test_a_failing_run_is_shrunk_and_shown() -> None:
    bug = next(bug for bug in ONE_BROKER if bug.name == "acknowledge before sync")
    failed = bug.hunt()
    assert failed is not None
    with bug.present():
        smallest = Shrinking(failed, runs_max=15).shrink()
        assert len(smallest.faults) < len(failed.faults)
        run = ClusterRun(smallest.seed, smallest.options, smallest.faults, traced=True)
        again = run.run()
    assert again.findings[0].rule == failed.findings[0].rule
    until_us = again.findings[0].time_us
    text = trace_text(run.room.trace, until_us, seconds=5)
    assert "POWER LOSS" in text
    assert "Produce v13" in text
    assert picture(run.room.trace, again.findings, until_us).endswith("</svg>\n")
