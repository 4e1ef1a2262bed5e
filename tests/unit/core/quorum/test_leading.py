"""What a leader takes as committed: entries of its own epoch on the disks of a majority, and nothing else."""

from __future__ import annotations

import pytest

from ottla.core.quorum.effects import AppendVoters, BeginEpochRequest, ElectionState, EpochAnswer, FetchRequest
from ottla.core.quorum.progress import Progress
from ottla.core.quorum.roles import Leader
from ottla.core.quorum.voters import Voter
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.core.quorum.cluster import endpoints
from tests.unit.core.quorum.replica import Replica, key, on_other_disk, voters

THREE = voters(1, 2, 3)
OLD = (1, 1, 2, 2)
"""The log of a replica that becomes leader after others led: four entries, of epochs 1 and 2."""


def test_entries_of_an_earlier_epoch_are_not_committed_by_count() -> None:
    """The eighth figure of the Raft paper: a majority has them, and still a leader to come may undo them."""
    leader = Replica(key(1), THREE, epochs=OLD).lead(2)
    assert isinstance(leader.core.role, Leader)
    assert leader.log.end_offset == 5, "its own first entry"
    assert leader.fetched(key(2), 4, 2) == 0
    assert leader.fetched(key(3), 4, 2) == 0, "all have the old entries, and yet"
    assert not leader.core.is_established
    assert leader.fetched(key(2), 5, leader.core.epoch) == 5, "with its own entry everything before it is committed"
    assert leader.core.is_established


def test_what_a_leader_of_an_earlier_epoch_left_can_still_be_undone() -> None:
    """The same figure with all its actors: the entry of epoch 2 is on a majority when another leader cuts it off."""
    five = voters(1, 2, 3, 4, 5)
    first = Replica(key(1), five, epochs=(1, 2)).lead(2, 3)  # leads again, in epoch 3, with its entry of epoch 2
    assert first.fetched(key(2), 2, 2) == first.fetched(key(3), 2, 2) == 0, "now on 1, 2 and 3: not committed"
    # It stops. Replica 5 led epoch 3 for a moment in the other half and has an entry that nobody else has.
    fifth = Replica(key(5), five, epochs=(1, 3))
    second = Replica(key(2), five, epochs=(1, 2))
    assert second.asked(key(5), 9, last=(3, 2)).granted, "its log is newer: it may lead"
    fifth.lead(2, 3, 4)
    answer = fifth.core.fetch_requested(FetchRequest(fifth.core.epoch, key(2), 2, 2, 0), fifth.now_ms)
    assert answer.diverging is not None, "the entry of epoch 2 goes"
    assert (answer.diverging.epoch, answer.diverging.offset) == (1, 1)


def test_what_the_leader_has_not_synced_does_not_count() -> None:
    leader = Replica(key(1), THREE).lead(2)
    epoch = leader.core.epoch
    assert leader.fetched(key(2), 1, epoch) == 1
    leader.append(epoch, sync=False)
    assert leader.fetched(key(2), 2, epoch) == 1
    assert leader.fetched(key(3), 2, epoch) == 2, "two others have it: a majority without the leader"


def test_a_voter_that_is_down_is_told_of_its_leader_less_and_less_often() -> None:
    leader = Replica(key(1), THREE).lead(2)
    timeout_ms, backoff_ms = leader.core._settings.fetch_timeout_ms, leader.core._settings.retry_backoff_ms
    [down] = [number for number, request in leader.sent(BeginEpochRequest) if request.voter == key(3)]
    waits = []
    for _ in range(9):
        leader.core.failed(down, leader.now_ms, refused=True)
        leader.pump()
        due_ms = leader.core.role.asks[3].next_ms if isinstance(leader.core.role, Leader) else None
        assert due_ms is not None
        waits.append(due_ms - leader.now_ms)
        leader.now_ms = due_ms
        leader.fetched(key(2), 1, leader.core.epoch)  # A majority lives on.
        leader.core.tick(leader.now_ms)
        leader.pump()
        [down] = [number for number, request in leader.sent(BeginEpochRequest) if request.voter == key(3)]
    assert waits[:4] == [backoff_ms, 2 * backoff_ms, 4 * backoff_ms, 8 * backoff_ms]
    assert waits[-1] == timeout_ms // 2, "and never less often than one that has heard"
    answer = EpochAnswer(ErrorCode.NONE, leader.core.epoch, 1)
    leader.core.answered(down, answer, leader.now_ms)
    assert isinstance(leader.core.role, Leader)
    assert leader.core.role.asks[3].failures == 0


def test_a_voter_on_another_disk_does_not_count() -> None:
    leader = Replica(key(1), THREE, epochs=OLD).lead(2)
    epoch = leader.core.epoch
    assert leader.fetched(key(2, disk=1), 5, epoch) == 0
    assert [found.key for found in _progress(leader).observers(leader.core.voters)] == [key(2, disk=1)]
    assert leader.fetched(key(2), 5, epoch) == 5
    leader.append(epoch)
    assert leader.fetched(key(2, disk=1), 6, epoch) == 5, "now the first disk is gone; the second is not it"
    leader.wait(2900)
    assert leader.core.role.name == "leader"
    leader.fetched(key(2, disk=1), 6, epoch)
    leader.wait(200)
    assert leader.core.role.name == "resigned", "it hears of no majority, whatever that disk says"


def test_a_majority_without_its_disk_is_removed_and_added_again() -> None:
    leader = Replica(key(1), THREE).lead(2)
    epoch = leader.core.epoch
    leader.fetched(key(3), 1, epoch)
    again = on_other_disk(THREE.voters[1])
    leader.fetched(again.key, 1, epoch)
    with pytest.raises(ApiError) as refused:
        leader.core.add_voter(again, leader.now_ms)
    assert refused.value.code is ErrorCode.DUPLICATE_VOTER
    with pytest.raises(ApiError) as unknown:
        leader.core.remove_voter(again.key)
    assert unknown.value.code is ErrorCode.VOTER_NOT_FOUND
    leader.core.remove_voter(key(2))
    leader.pump()
    assert leader.core.voters.ids == (1, 3)
    with pytest.raises(ApiError) as busy:
        leader.core.add_voter(again, leader.now_ms)
    assert busy.value.code is ErrorCode.REQUEST_TIMED_OUT, "one change at a time"
    assert leader.fetched(key(3), 2, epoch) == 2
    leader.fetched(again.key, 2, epoch)
    leader.core.add_voter(again, leader.now_ms)
    leader.pump()
    assert leader.core.voters.find(2) == again
    assert leader.fetched(again.key, 3, epoch) == 3


def test_a_voter_says_where_it_listens_now() -> None:
    leader = Replica(key(1), THREE).lead(2)
    epoch = leader.core.epoch
    leader.fetched(key(2), 1, epoch)
    assert leader.core.update_voter(THREE.voters[1]) is False, "nothing new"
    assert not leader.pump()
    moved = Voter(2, key(2).directory_id, endpoints(22))
    assert leader.core.update_voter(moved) is True
    [effect] = leader.pump()
    assert isinstance(effect, AppendVoters)
    assert leader.core.voters.find(2) == moved
    assert leader.core.voters.find(3) == THREE.voters[2]
    assert leader.fetched(key(2), 2, epoch) == 2
    with pytest.raises(ApiError) as refused:
        leader.core.update_voter(on_other_disk(moved))
    assert refused.value.code is ErrorCode.VOTER_NOT_FOUND


def test_only_a_leader_changes_voters() -> None:
    replica = Replica(key(2), THREE)
    for change in (lambda: replica.core.remove_voter(key(1)), lambda: replica.core.update_voter(THREE.voters[0])):
        with pytest.raises(ApiError) as refused:
            change()
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_last_voter_stays() -> None:
    leader = Replica(key(1), voters(1))
    leader.wait(0)
    assert leader.core.high_watermark == 1
    with pytest.raises(ApiError) as refused:
        leader.core.remove_voter(key(1))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("shift", "error"), [(-1, ErrorCode.FENCED_LEADER_EPOCH), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_fetch_of_another_epoch_counts_for_nothing(shift: int, error: ErrorCode) -> None:
    leader = Replica(key(1), THREE).lead(2)
    request = FetchRequest(leader.core.epoch + shift, key(2), 1, leader.core.epoch, 0)
    assert leader.core.fetch_requested(request, leader.now_ms).error is error
    assert leader.core.high_watermark == 0


def _progress(leader: Replica) -> Progress:
    assert isinstance(leader.core.role, Leader)
    return leader.core.role.progress


def test_who_was_elected_stays_on_disk_when_it_leads_no_more_and_after_a_restart() -> None:
    """Apache Kafka, started there, would ask for votes in the epoch that it has led, and end with the first answer."""
    leader = Replica(key(1), THREE, epochs=OLD).lead(2)
    epoch = leader.core.epoch
    assert leader.stored == ElectionState(epoch, key(1), 1)
    leader.core.resign(leader.now_ms)
    leader.pump()
    assert (leader.core.role.name, leader.core.leader_id) == ("resigned", -1)
    assert leader.stored == ElectionState(epoch, key(1), 1)
    again = leader.again()
    assert again.core.leader_id == -1, "it leads nobody"
    assert not again.asked(key(3), epoch, last=(epoch, 100)).granted
    assert again.asked(key(3), epoch + 1, last=(epoch, 100)).granted
    assert again.stored == ElectionState(epoch + 1, key(3))
