"""A vote is given once an epoch, to a log that is not behind, by the very replica that was asked."""

from __future__ import annotations

from ottla.core.quorum.effects import (
    BeginEpoch,
    BeginEpochRequest,
    ElectionState,
    EndEpochRequest,
    Send,
    StoreState,
    VoteAnswer,
    VoteRequest,
)
from ottla.core.quorum.roles import Follower, Leader, Unattached
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from tests.unit.core.quorum.cluster import endpoints
from tests.unit.core.quorum.replica import TIMEOUT_MS, Replica, key, voters

THREE = voters(1, 2, 3)


def test_a_vote_is_given_once_an_epoch() -> None:
    replica = Replica(key(2), THREE)
    assert replica.asked(key(1), 5).granted
    assert replica.stored == ElectionState(5, key(1))
    second = replica.asked(key(3), 5)
    assert (second.error, second.granted) == (ErrorCode.NONE, False)
    assert replica.asked(key(1), 5).granted, "the same candidate may ask again: an answer may have been lost"
    assert replica.asked(key(3), 6).granted, "another epoch, another vote"


def test_a_vote_is_for_a_node_and_its_disk() -> None:
    replica = Replica(key(2), THREE)
    assert replica.asked(key(1), 5).granted
    assert not replica.asked(key(1, disk=1), 5).granted


def test_a_vote_outlives_a_crash() -> None:
    before = Replica(key(2), THREE)
    assert before.asked(key(1), 5).granted
    after = before.again()
    assert not after.asked(key(3), 5).granted
    assert after.asked(key(1), 5).granted


def test_a_vote_outlives_a_leader_that_came_and_went() -> None:
    replica = Replica(key(2), THREE)
    assert replica.asked(key(1), 5).granted
    replica.core.begin_epoch_requested(BeginEpochRequest(5, 1, key(2), endpoints(1)), replica.now_ms)
    assert isinstance(replica.core.role, Follower)
    replica.pump()
    replica.wait(10 * TIMEOUT_MS)
    assert replica.core.leader_id == -1
    assert not replica.asked(key(3), 5).granted
    assert replica.stored.voted == key(1)


def test_a_candidate_has_voted_for_itself() -> None:
    replica = Replica(key(2), THREE)
    replica.wait(10 * TIMEOUT_MS)
    for number, _ in replica.sent(VoteRequest):
        replica.core.answered(number, VoteAnswer(ErrorCode.NONE, replica.core.epoch, -1, True), replica.now_ms)
    replica.pump()
    assert replica.core.role.name == "candidate"
    epoch = replica.core.epoch
    assert replica.stored == ElectionState(epoch, key(2))
    assert not replica.asked(key(3), epoch).granted
    assert not replica.again().asked(key(3), epoch).granted


def test_its_own_vote_counts_when_it_is_on_disk() -> None:
    replica = Replica(key(2), THREE)
    replica.wait(10 * TIMEOUT_MS)
    [(number, _), *_] = replica.sent(VoteRequest)
    replica.core.answered(number, VoteAnswer(ErrorCode.NONE, 0, -1, True), replica.now_ms)
    effects = replica.core.drain()  # nothing of it is carried out
    [stored] = [effect for effect in effects if isinstance(effect, StoreState)]
    numbers = [effect.number for effect in effects if isinstance(effect, Send)]
    replica.core.answered(numbers[0], VoteAnswer(ErrorCode.NONE, 1, -1, True), replica.now_ms)
    assert replica.core.role.name == "candidate"
    replica.core.state_stored(stored.version, replica.now_ms)
    assert replica.core.role.name == "leader"


def test_a_log_that_is_behind_gets_no_vote() -> None:
    replica = Replica(key(2), THREE, epochs=(1, 1, 3))
    for last in ((1, 100), (3, 2), (2, 3)):
        assert not replica.asked(key(1), 5, last=last).granted, last
    assert replica.stored.voted is None
    assert replica.asked(key(1), 5, last=(3, 3)).granted


def test_a_pre_vote_is_no_vote() -> None:
    replica = Replica(key(2), THREE)
    assert replica.asked(key(1), 5, pre_vote=True).granted
    assert replica.asked(key(3), 5, pre_vote=True).granted
    assert replica.stored.voted is None
    assert replica.asked(key(3), 5).granted


def test_who_hears_its_leader_wants_no_other() -> None:
    replica = Replica(key(2), THREE)
    replica.core.begin_epoch_requested(BeginEpochRequest(5, 1, key(2), endpoints(1)), replica.now_ms)
    replica.pump()
    assert isinstance(replica.core.role, Follower)
    replica.core.role.has_fetched = True
    assert not replica.asked(key(3), 5, pre_vote=True).granted
    assert not replica.asked(key(3), 5).granted
    replica.core.end_epoch_requested(EndEpochRequest(5, 1, (key(3), key(2)), endpoints(1)), replica.now_ms)
    assert replica.asked(key(3), 5, pre_vote=True).granted


def test_a_new_disk_does_not_vote_for_the_old_one() -> None:
    wiped = Replica(key(2, disk=1), THREE, epochs=())
    for pre_vote in (True, False):
        answer = wiped.asked(key(1), 5, voter=key(2), pre_vote=pre_vote)
        assert (answer.error, answer.granted) == (ErrorCode.INVALID_VOTER_KEY, False)
    assert wiped.stored == ElectionState()
    told = wiped.core.begin_epoch_requested(BeginEpochRequest(5, 1, key(2), endpoints(1)), wiped.now_ms)
    assert told.error is ErrorCode.INVALID_VOTER_KEY
    assert isinstance(wiped.core.role, Follower), "it learns of the leader and follows, as an observer"


def test_a_new_disk_never_asks_for_votes() -> None:
    wiped = Replica(key(2, disk=1), THREE, epochs=(1, 1))
    assert not wiped.core.is_voter
    for _ in range(50):
        wiped.wait(TIMEOUT_MS)
        assert isinstance(wiped.core.role, Unattached)
    assert not wiped.sent(VoteRequest)
    wiped.core.end_epoch_requested(EndEpochRequest(1, 1, (key(2, disk=1),), endpoints(1)), wiped.now_ms)
    wiped.wait(TIMEOUT_MS)
    assert not wiped.sent(VoteRequest)


def test_a_vote_by_another_node_of_the_same_place_is_not_asked_for() -> None:
    """What is sent names the disk that the voters' record names."""
    replica = Replica(key(1), THREE)
    replica.wait(10 * TIMEOUT_MS)
    assert [request.voter for _, request in replica.sent(VoteRequest)] == [key(2), key(3)]


def test_all_must_agree_while_a_quorum_is_founded() -> None:
    unknown = THREE.with_directories(dict.fromkeys((1, 2, 3), ZERO_UUID))
    replica = Replica(key(1), unknown, is_recorded=False)
    replica.lead(2)
    assert not any(isinstance(effect, BeginEpoch) for effect in replica.wanted)
    assert not isinstance(replica.core.role, Leader)
    assert isinstance(Replica(key(1), unknown, is_recorded=False).lead(2, 3).core.role, Leader)
