"""Each deliberate bug is found within its number of seeds."""

from __future__ import annotations

import pytest

from simulator.bugs.bug import Bug, Patches
from simulator.bugs.cluster import CLUSTER
from simulator.bugs.grouped_writes import GROUPED_WRITES
from simulator.bugs.one_broker import ONE_BROKER
from simulator.bugs.transactions import TRANSACTIONS

CATALOGUE = (*ONE_BROKER, *GROUPED_WRITES, *CLUSTER, *TRANSACTIONS)


@pytest.mark.parametrize("bug", CATALOGUE, ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_bug_is_found(bug: Bug) -> None:
    found = bug.hunt()
    assert found is not None, f"{bug.name} ({bug.breaks}) was not found in {bug.seeds_max} seeds"


def test_a_bug_is_gone_afterwards() -> None:
    before = [vars(owner)[name] for owner, name in _places()]
    for bug in CATALOGUE:
        with bug.present():
            pass
    assert [vars(owner)[name] for owner, name in _places()] == before


def _places() -> list[tuple[object, str]]:
    patches = Patches()
    for bug in CATALOGUE:
        bug.put_in(patches)
    places = [(owner, name) for owner, name, _ in patches._before]
    patches.take_back()
    return places
