"""A session names what changed, and is begun anew after any doubt."""

from __future__ import annotations

from ottla.core.replication.replica_session import EPOCH_MAX, Asked, ReplicaSession, SessionRequest


def is_open(session: ReplicaSession[str]) -> bool:
    return session.is_open


A, B = Asked(1, 0, -1, 0), Asked(1, 10, 1, 0)


def test_a_session_begins_whole_and_goes_on_with_what_changed() -> None:
    session: ReplicaSession[str] = ReplicaSession()
    first = session.full({"a": A, "b": A})
    assert first == SessionRequest(0, 0, [("a", A), ("b", A)], [])
    assert not is_open(session)
    session.answered(first, 77)
    assert is_open(session)
    assert session.incremental([("a", A), ("b", B)], []) == SessionRequest(77, 1, [("b", B)], [])
    assert session.incremental([], ["a", "unknown"]) == SessionRequest(77, 2, [], ["a"])
    # One that comes back is named again, although it is as it was.
    assert session.incremental([("a", A)], []) == SessionRequest(77, 3, [("a", A)], [])


def test_who_is_to_ask_again_is_named_although_it_is_as_it_was() -> None:
    session: ReplicaSession[str] = ReplicaSession()
    session.answered(session.full({"a": A, "b": A}), 77)
    session.ask_again("a")
    assert session.incremental([("a", A), ("b", A)], []).rows == [("a", A)]
    session.ask_again("unknown")
    assert session.incremental([("a", A)], []).rows == []


def test_a_leader_without_room_is_asked_for_everything_each_time() -> None:
    session: ReplicaSession[str] = ReplicaSession()
    session.answered(session.full({"a": A}), 0)
    assert bool(session.refused) is True
    assert not is_open(session)
    session.answered(session.full({"a": B}), 5)
    assert bool(session.refused) is False
    assert is_open(session)


def test_a_session_that_is_forgotten_names_its_old_id_once() -> None:
    session: ReplicaSession[str] = ReplicaSession()
    session.answered(session.full({"a": A}), 77)
    session.forget()
    assert session.full({"a": A}).session_id == 77
    session.forget()
    assert session.full({"a": A}).session_id == 0


def test_the_epoch_wraps_to_one() -> None:
    session: ReplicaSession[str] = ReplicaSession()
    session.answered(session.full({"a": A}), 77)
    session.epoch = EPOCH_MAX
    assert session.incremental([], []).epoch == EPOCH_MAX
    assert session.incremental([], []).epoch == 1


def test_a_session_that_the_leader_has_let_go_of_begins_whole() -> None:
    session: ReplicaSession[str] = ReplicaSession()
    session.answered(session.full({"a": A}), 77)
    session.answered(session.incremental([], ["a"]), 0)
    assert not is_open(session)
    assert session.full({"a": A}).session_id == 0
