"""A machine and its process: who ended well, and who is not believed when it comes back."""

from __future__ import annotations

import pytest

from simulator.cluster_run import ClusterRun
from simulator.faults import Fault
from simulator.node import SimulatedNode
from simulator.options import Options
from simulator.room import Room
from simulator.timeline import SECOND_US


def started() -> SimulatedNode:
    room = Room(1)
    node = SimulatedNode(room, 1, Options().broker_properties())
    node.start()
    run(node, 1)
    assert node.is_ready
    return node


def run(node: SimulatedNode, seconds: int) -> None:
    timeline = node.room.timeline
    timeline.run(timeline.now_us + seconds * SECOND_US)


def test_one_that_was_asked_to_stop_ends_well() -> None:
    node = started()
    node.stop()
    run(node, 10)
    assert not node.is_alive
    assert not node.is_unclean


def test_one_that_was_killed_does_not() -> None:
    node = started()
    node.kill()
    assert node.is_unclean


def test_one_that_gave_up_because_of_its_disk_does_not_though_it_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller takes it out of every ISR: what it has is no good copy to rely on."""
    ended: list[bool] = []
    end = SimulatedNode._end

    def note(self: SimulatedNode, *, silently: bool, is_clean: bool = False) -> None:
        ended.append(is_clean)
        end(self, silently=silently, is_clean=is_clean)

    monkeypatch.setattr(SimulatedNode, "_end", note)
    options = Options(seconds=8, seconds_between_sends=0.1, transactional_producers=0, group_members=0)
    result = ClusterRun(1, options, [Fault(2_000_000, "write error", 0, 500_000, 0)]).run()
    assert result.findings == []
    assert ended == [False]


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_what_was_not_synced_goes_with_the_process_only_if_a_sync_has_failed(is_asked_for: bool) -> None:
    node = started()
    node.mount.faults.on_failed_sync = node.sync_failed
    node.mount.faults.fail_syncs = True
    if is_asked_for:
        node.stop()
        run(node, 10)
    else:
        node.kill()
    assert not node.is_alive
    assert node.may_lack_data is is_asked_for
    assert node.is_unclean
