"""A follower does with its log what the leader's answers say, and never gives up what is committed."""

from __future__ import annotations

import pytest

from ottla.core.quorum.effects import (
    Append,
    BeginEpochRequest,
    FetchAnswer,
    FetchRequest,
    FetchSnapshot,
    OffsetAndEpoch,
    VoteRequest,
)
from ottla.core.quorum.roles import Follower
from ottla.model.errors import CorruptLogError, ErrorCode
from tests.unit.core.quorum.cluster import Entry, endpoints
from tests.unit.core.quorum.replica import TIMEOUT_MS, Replica, key, voters

THREE = voters(1, 2, 3)
EPOCH = 5


def follower(*epochs: int) -> Replica:
    """Follows node 1; its first fetch is under way."""
    replica = Replica(key(2), THREE, epochs=epochs)
    replica.core.begin_epoch_requested(BeginEpochRequest(EPOCH, 1, key(2), endpoints(1)), replica.now_ms)
    replica.pump()
    replica.wait(1)
    return replica


def answer(replica: Replica, **fields: object) -> FetchRequest:
    """Answer the fetch that is under way; what was asked."""
    [(number, request)] = replica.sent(FetchRequest)
    found = FetchAnswer(ErrorCode.NONE, EPOCH, 1)._replace(**fields)  # type: ignore[arg-type]
    replica.core.answered(number, found, replica.now_ms)
    replica.pump()
    return request


def test_it_fetches_from_where_its_disk_ends() -> None:
    replica = follower(1, 1, 2)
    request = answer(replica, records=[Entry(5, "a"), Entry(5, "b")], high_watermark=4)
    assert (request.fetch_offset, request.last_fetched_epoch, request.replica) == (3, 2, key(2))
    assert replica.core.high_watermark == 4
    request = answer(replica, high_watermark=99)
    assert (request.fetch_offset, request.last_fetched_epoch) == (5, 5)
    assert replica.core.high_watermark == 5, "never beyond its own log"


def test_what_an_earlier_role_left_is_synced_before_it_counts() -> None:
    replica = Replica(key(2), THREE, epochs=(1,))
    replica.append(1, sync=False)
    replica.core.begin_epoch_requested(BeginEpochRequest(EPOCH, 1, key(2), endpoints(1)), replica.now_ms)
    effects = replica.pump() + replica.wait(1)
    assert [effect for effect in effects if isinstance(effect, Append)]
    assert not replica.sent(FetchRequest)
    replica.log.synced = 2
    replica.core.synced(replica.now_ms)
    replica.pump()
    [(_, request)] = replica.sent(FetchRequest)
    assert request.fetch_offset == 2


@pytest.mark.parametrize(
    ("epochs", "diverging", "left"),
    [
        ((1, 1, 3, 3), OffsetAndEpoch(2, 1), 2),
        ((1, 1, 3, 3), OffsetAndEpoch(5, 2), 2),
        ((1, 1, 3, 3), OffsetAndEpoch(3, 3), 3),
        ((3, 3), OffsetAndEpoch(1, 1), 0),
    ],
)
def test_it_is_cut_where_the_logs_part(epochs: tuple[int, ...], diverging: OffsetAndEpoch, left: int) -> None:
    replica = follower(*epochs)
    answer(replica, diverging=diverging)
    assert replica.log.end_offset == left


def test_what_is_committed_is_never_cut() -> None:
    replica = follower(1, 1, 1)
    replica.core.high_watermark = 3
    with pytest.raises(CorruptLogError):
        answer(replica, diverging=OffsetAndEpoch(1, 1))
    assert replica.log.end_offset == 3


def test_a_snapshot_comes_first_when_it_is_far_behind() -> None:
    replica = follower()
    [(number, _)] = replica.sent(FetchRequest)
    found = FetchAnswer(ErrorCode.NONE, EPOCH, 1, snapshot=OffsetAndEpoch(100, 4))
    replica.core.answered(number, found, replica.now_ms)
    [effect] = replica.pump()
    assert isinstance(effect, FetchSnapshot)
    assert (effect.snapshot, effect.leader.node_id) == (OffsetAndEpoch(100, 4), 1)
    for _ in range(20):
        replica.now_ms += TIMEOUT_MS
        replica.core.snapshot_progress(replica.now_ms)
        replica.core.tick(replica.now_ms)
    assert isinstance(replica.core.role, Follower), "a leader that sends a long snapshot lives"


def test_a_refused_connection_means_a_pre_vote_soon() -> None:
    replica = follower(1)
    [(number, _)] = replica.sent(FetchRequest)
    replica.core.failed(number, replica.now_ms, refused=True)
    replica.pump()
    replica.wait(100)
    assert [request.pre_vote for _, request in replica.sent(VoteRequest)] == [True, True]


def test_a_silent_leader_is_waited_for() -> None:
    replica = follower(1)
    answer(replica)
    replica.wait(1999)
    assert isinstance(replica.core.role, Follower)
    replica.wait(1)
    assert replica.core.role.name == "prospective"


def test_an_answer_of_an_earlier_epoch_changes_nothing() -> None:
    replica = follower(1)
    answer(replica, epoch=EPOCH - 1, records=[Entry(4, "old")], high_watermark=2)
    assert replica.log.end_offset == 1
    assert replica.core.epoch == EPOCH
