"""Voter sets: how many decide, who is one of them, and how a history of them follows the log."""

from __future__ import annotations

import pytest

from ottla.core.quorum.voters import VoterHistory, VoterSet
from ottla.model.ids import ZERO_UUID
from tests.unit.core.quorum.replica import key, on_other_disk, voters

THREE = voters(1, 2, 3)
UNKNOWN = THREE.with_directories(dict.fromkeys((1, 2, 3), ZERO_UUID))


@pytest.mark.parametrize(("members", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_decides(members: int, needed: int) -> None:
    found = voters(*range(1, members + 1))
    assert found.needed == needed
    assert found.wins(range(1, needed + 1))
    assert not found.wins(range(1, needed))
    assert not found.wins([*range(1, needed), 99, 100]), "others do not count"
    assert found.can_win(range(1, members - needed + 1))
    assert not found.can_win(range(1, members - needed + 2))


def test_all_decide_while_one_directory_is_not_known() -> None:
    for unknown in (UNKNOWN, THREE.with_directories({2: ZERO_UUID})):
        assert not unknown.is_known
        assert unknown.needed == 3
        assert unknown.agreed({1: 5, 2: 5}) == -1
        assert unknown.agreed({1: 5, 2: 3, 3: 4}) == 3
    assert THREE.agreed({1: 5, 2: 3, 3: 4}) == 4
    assert THREE.agreed({1: 5}) == -1
    assert VoterSet(()).agreed({}) == -1


def test_a_voter_is_a_node_and_its_disk() -> None:
    assert THREE.includes(key(1))
    assert not THREE.includes(key(1, disk=1))
    assert UNKNOWN.includes(key(1, disk=1)), "as long as nobody knows better"
    assert not UNKNOWN.includes(key(4))
    assert voters(1).is_sole(key(1))
    assert not voters(1).is_sole(key(1, disk=1))


def test_voters_are_replaced_added_and_removed() -> None:
    again = on_other_disk(THREE.voters[1])
    assert THREE.with_voter(again).find(2) == again
    assert THREE.with_voter(voters(9).voters[0]).ids == (1, 2, 3, 9)
    assert THREE.without(2).ids == (1, 3)
    assert THREE.without(7) == THREE


def test_what_is_cut_off_is_undone() -> None:
    history = VoterHistory(UNKNOWN)
    assert not history.is_recorded
    assert history.at(100) is None
    history.add(2, THREE)
    history.add(10, THREE.without(3))
    assert (history.current.ids, history.last_offset) == ((1, 2), 10)
    assert (history.at(10), history.at(11)) == (THREE, THREE.without(3))
    history.truncate(10)
    assert (history.current, history.last_offset, history.is_recorded) == (THREE, 2, True)
    history.truncate(2)
    assert (history.current, history.last_offset, history.is_recorded) == (UNKNOWN, -1, False)


def test_a_snapshot_is_a_new_beginning() -> None:
    history = VoterHistory(UNKNOWN)
    history.add(2, THREE.without(3))
    history.restart(THREE)
    assert (history.current, history.last_offset, history.is_recorded) == (THREE, -1, True)
    assert history.at(0) == THREE
