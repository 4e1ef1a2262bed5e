"""A fetch session that drifts from the broker's loses records or fetches them twice."""

from __future__ import annotations

from ottla.client.fetching import NO_SESSION, Fetched, FetchedPartition, FetchSession
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.fetch_types import FetchPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def entry(offset: int, partition: int = 0) -> FetchPartition:
    return FetchPartition(partition, 1, offset, -1, -1, 100)


def answer(session_id: int, error: ErrorCode = ErrorCode.NONE, partition_error: ErrorCode | None = None) -> Fetched:
    partitions = []
    if partition_error is not None:
        partitions.append(FetchedPartition(FIRST, partition_error, memoryview(b""), 0, 0, 0, ()))
    return Fetched(error, session_id, partitions)


def test_the_first_fetch_names_everything_and_later_ones_only_what_moved() -> None:
    session = FetchSession()
    assert session.changes({FIRST: entry(0), SECOND: entry(0, 1)}) == ({FIRST: entry(0), SECOND: entry(0, 1)}, [])
    session.take(answer(77))
    assert (session.session_id, session.epoch) == (77, 1)
    assert session.changes({FIRST: entry(5), SECOND: entry(0, 1)}) == ({FIRST: entry(5)}, [])


def test_what_is_no_longer_wanted_is_forgotten_once() -> None:
    session = FetchSession()
    session.changes({FIRST: entry(0), SECOND: entry(0, 1)})
    session.take(answer(77))
    assert session.changes({FIRST: entry(0)}) == ({}, [SECOND])
    assert session.changes({FIRST: entry(0)}) == ({}, [])


def test_a_broker_that_forgot_the_session_gets_everything_again() -> None:
    session = FetchSession()
    session.changes({FIRST: entry(0)})
    session.take(answer(77))
    session.take(answer(0, ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    assert (session.session_id, session.epoch) == (NO_SESSION, 0)
    assert session.changes({FIRST: entry(0)}) == ({FIRST: entry(0)}, [])


def test_a_broker_without_room_for_sessions_gets_full_fetches() -> None:
    session = FetchSession()
    session.changes({FIRST: entry(0)})
    session.take(answer(NO_SESSION))
    assert session.changes({FIRST: entry(0)}) == ({FIRST: entry(0)}, [])


def test_a_topic_that_was_made_anew_starts_a_new_session() -> None:
    session = FetchSession()
    session.changes({FIRST: entry(0)})
    session.take(answer(77, partition_error=ErrorCode.UNKNOWN_TOPIC_ID))
    assert session.session_id == NO_SESSION


def test_the_count_of_fetches_wraps_past_the_number_that_starts_a_session() -> None:
    session = FetchSession()
    session.take(answer(77))
    session.epoch = 2**31 - 1
    session.take(answer(77))
    assert session.epoch == 1
