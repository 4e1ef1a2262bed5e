"""Whole runs: they pass, a seed gives the same run each time, and a failing one can be shrunk and shown."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from simulator.active_controller import ActiveController
from simulator.bugs.bug import PLAIN
from simulator.bugs.grouped_writes import CROWDED, REPLICATED
from simulator.bugs.one_broker import ONE_BROKER
from simulator.chance import Chance
from simulator.cluster_run import QUIET_SECONDS, SETTLE_SECONDS, ClusterRun
from simulator.faults import WEIGHTS, Fault, plan
from simulator.options import Options, draw
from simulator.picture import picture
from simulator.shrink import Shrinking
from simulator.timeline import SECOND_US, Call
from simulator.trace_text import trace_text


@pytest.mark.parametrize("seed", [2, 7])
def test_a_seed_passes_and_is_the_same_run_each_time(seed: int) -> None:
    options = replace(draw(seed), seconds=60)
    first, second = (ClusterRun(seed, options, plan(seed, options)).run() for _ in range(2))
    assert first.findings == []
    assert first.acknowledged > 0
    assert (first.digest, first.events) == (second.digest, second.events)


@pytest.mark.parametrize(
    ("seed", "seconds"), [pytest.param(142, 34, id="a bit of an offset flips in a log that is compacted then")]
)
def test_a_seed_that_has_found_a_defect_passes(seed: int, seconds: int) -> None:
    options = replace(draw(seed), seconds=seconds, sessionless_readers=0)
    assert ClusterRun(seed, options, plan(seed, options)).run().findings == []


@pytest.mark.parametrize(("options", "seed"), [(CROWDED, 3), (CROWDED, 31), (REPLICATED, 12)])
def test_a_restart_forgets_none_of_the_batches_that_a_producer_may_send_again(
    options: dict[str, Any], seed: int
) -> None:
    """Several were written, no answer arrived, and then the broker began with a snapshot of its producers."""
    drawn = replace(draw(seed), **{**PLAIN, **options})
    assert ClusterRun(seed, drawn, plan(seed, drawn)).run().findings == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_power_loss_right_after_the_first_start_takes_nothing_that_was_acknowledged(seed: int) -> None:
    """The name of a new data directory is on the medium before anything in it counts."""
    options = Options(nodes=1, seconds=15, seconds_between_sends=0.1, producers=1, readers=1)
    faults = [fault for fault in plan(seed, replace(options, seconds_between_faults=1.0)) if fault.kind == "power"]
    assert ClusterRun(seed, options, faults[:1]).run().findings == []


def test_the_full_read_does_not_wait_where_everything_was_read() -> None:
    """Of partitions with as many segments as these one ends before another: that one is not fetched from any more."""
    options = Options(
        nodes=3, replicas=3, seconds=30, partitions=3, segment_bytes=1000, seconds_between_sends=0.05, window=5,
        batch_records_max=8, producers=1, readers=1, transactional_producers=0, group_members=0,
    )  # fmt: skip
    result = ClusterRun(2, options, []).run()
    assert result.findings == []
    assert result.simulated_us < (options.seconds + SETTLE_SECONDS + QUIET_SECONDS + 3) * SECOND_US


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


@pytest.mark.parametrize(
    ("in_sync", "is_enough"), [([(1, 3), (3, 2)], True), ([(1, 3), (1, 2)], False), ([(3,), (1,)], False), ([], True)]
)
def test_one_good_copy_of_every_partition_is_enough(in_sync: list[tuple[int, ...]], is_enough: bool) -> None:
    run = ClusterRun(1, Options(nodes=3, replicas=3, flush_each=False), [])
    first, second, third = run.nodes
    second.is_unclean = second.may_lack_data = first.is_ready = second.is_ready = third.is_ready = True
    topic = SimpleNamespace(partitions=[SimpleNamespace(isr=isr) for isr in in_sync])
    controller = SimpleNamespace(services=SimpleNamespace(image=SimpleNamespace(topics={"orders": topic})))
    run._controller = cast(ActiveController, SimpleNamespace(find=lambda: controller))
    assert run.may_lose_data(first) is is_enough
    assert run.may_be_killed(first) is is_enough
    third.is_unclean = True
    assert run.may_lose_data(first) is not bool(in_sync)


@pytest.mark.parametrize("kind", ["kill in a write", "power in a write", "sync error", "crash loop", "unrest"])
def test_nothing_fails_after_everything_has_healed(kind: str) -> None:
    options = Options(seconds=6, seconds_between_sends=0.1, transactional_producers=0, group_members=0)
    run = ClusterRun(1, options, [Fault(5_990_000, kind, 0, 100_000, 0b111100000)])
    assert run.run().findings == []
    assert run.nodes[0].starts == (2 if kind == "crash loop" else 1)


def test_a_node_whose_power_goes_late_in_a_crash_loop_comes_back() -> None:
    options = Options(seconds=20, seconds_between_sends=2.0, producers=1, transactional_producers=0, group_members=0)
    run = ClusterRun(1, options, [Fault(2_000_000, "crash loop", 0, 1000, 40)])
    alive: list[bool] = []
    run.room.timeline.at(19 * SECOND_US, Call(lambda: alive.append(run.nodes[0].is_ready)))
    assert run.run().findings == []
    assert alive == [True]
    assert run.nodes[0].starts == 4


def test_a_cluster_that_does_not_stay_healed_is_found() -> None:
    options = Options(seconds=3, transactional_producers=0, group_members=0)
    run = ClusterRun(1, options, [])
    after_it_settled = (options.seconds + SETTLE_SECONDS + QUIET_SECONDS // 2) * SECOND_US
    run.room.timeline.at(after_it_settled, Call(run.nodes[0].kill))
    assert [finding.rule for finding in run.run().findings] == ["a healed cluster stays as it is"]


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
    "requests served together",
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
    text = trace_text(run.room.trace, until_us, seconds=30)
    assert "POWER LOSS" in text
    assert "Produce v13" in text
    assert picture(run.room.trace, again.findings, until_us).endswith("</svg>\n")
