"""Fetches of followers as they come over the wire, and what consumers are told where another broker leads."""

from __future__ import annotations

import asyncio

import pytest

from ottla.api import fetch
from ottla.api.context import Services
from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.model.errors import ErrorCode, MalformedMessageError
from ottla.wire.fetch_client import FetchResponse, encode_request, fetch_request, parse_response
from ottla.wire.fetch_types import FetchPartition, FetchRequest
from ottla.wire.fields import TopicKey
from tests.unit.api.fetch_services import joined
from tests.unit.api.replica_services import CLUSTER_ID, context, services
from tests.unit.runtime.hosted import run
from tests.unit.runtime.replicas import TOPIC, TOPIC_ID, Cluster

VERSION = 17
HEADER_BYTES = 5
LEADER_EPOCH = 5


def ask(
    made: Services,
    offset: int | None,
    *,
    replica: int = -1,
    life: int = -1,
    session: tuple[int, int] = (0, 0),
    cluster_id: str | None = None,
    leader_epoch: int = LEADER_EPOCH,
    wait_ms: int = 0,
    rack: str = "",
) -> FetchResponse | Deferred:
    wanted: list[tuple[TopicKey, list[FetchPartition]]] = (
        [] if offset is None else [(TOPIC_ID, [FetchPartition(0, leader_epoch, offset, -1, 0, 1 << 20)])]
    )
    request = FetchRequest(replica, wait_ms, 1, 1 << 20, 0, *session, wanted, [], rack, cluster_id, life, {})
    answer = fetch.handle(context(made, 1, VERSION), memoryview(encode_request(VERSION, request)), 0)
    return answer if isinstance(answer, Deferred) else parsed(answer)


def parsed(chunks: Chunks) -> FetchResponse:
    return parse_response(joined(chunks), HEADER_BYTES, VERSION)


def answered(answer: FetchResponse | Deferred) -> FetchResponse:
    if isinstance(answer, Deferred):
        assert answer.done
        return parsed(answer.chunks)
    return answer


def test_a_followers_session_moves_the_high_watermark() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        made = services(cluster)
        cluster.produce()
        first = answered(ask(made, 0, replica=2, life=102))
        assert first.session_id > 0
        (data,) = first.topics[0][1]
        assert data.records is not None
        second = ask(made, 1, replica=2, life=102, session=(first.session_id, 1), wait_ms=60_000)
        assert cluster.leader.high_watermark == 1
        assert isinstance(second, Deferred)
        cluster.produce()
        for _ in range(3):
            await asyncio.sleep(0)
        (data,) = answered(second).topics[0][1]
        assert (data.high_watermark, data.records is None) == (1, False)
        other = answered(ask(made, None, replica=2, life=103, session=(first.session_id, 2)))
        assert other.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario)


def test_an_older_life_and_another_cluster_are_refused() -> None:
    async def scenario() -> None:
        made = services(Cluster(2))
        assert answered(ask(made, 0, replica=2, life=101)).error_code == ErrorCode.STALE_BROKER_EPOCH
        other = ask(made, 0, replica=2, life=102, cluster_id="other")
        assert answered(other).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        same = ask(made, 0, replica=2, life=102, cluster_id=CLUSTER_ID)
        assert answered(same).error_code == 0

    run(scenario)


def test_a_consumer_with_an_old_epoch_learns_who_leads_and_where() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        made = services(cluster)
        cluster.change(leader=2)
        cluster.publish()
        answer = answered(ask(made, 0, session=(0, -1)))
        (data,) = answer.topics[0][1]
        assert (data.error_code, data.current_leader) == (ErrorCode.FENCED_LEADER_EPOCH, (2, 6))
        assert [endpoint[:3] for endpoint in answer.node_endpoints] == [(2, "host-2", 9092)]

    run(scenario)


def test_a_consumer_that_names_its_rack_reads_here_unless_told_otherwise() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce()
        cluster.catch_up()
        (data,) = answered(ask(services(cluster), 0, session=(0, -1), rack="a")).topics[0][1]
        assert data.records is not None

    run(scenario)


def session_in(made: Services, topic: TopicKey, version: int, session: tuple[int, int]) -> FetchResponse:
    """The answer to a fetch of one version; the first one of a session names the topic."""
    _, epoch = session
    wanted = [(topic, [FetchPartition(0, -1, 0, -1, -1, 1 << 20)])] if epoch == 0 else []
    request = fetch_request(wanted, max_wait_ms=0, session_id=session[0], session_epoch=epoch)
    answer = fetch.handle(context(made, 1, version), memoryview(encode_request(version, request)), 0)
    assert isinstance(answer, list | tuple)
    return parse_response(joined(answer), HEADER_BYTES, version)


@pytest.mark.parametrize(("topic", "first", "then"), [(TOPIC, 12, 13), (TOPIC_ID, 13, 12)])
def test_a_consumer_that_changes_how_it_names_topics_is_told_to_begin_anew(
    topic: TopicKey, first: int, then: int
) -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        made = services(cluster)
        cluster.produce()
        cluster.catch_up()
        opened = session_in(made, topic, first, (0, 0))
        assert opened.topics[0][1][0].error_code == 0
        other = session_in(made, topic, then, (opened.session_id, 1))
        assert (other.error_code, other.topics) == (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, [])

    run(scenario)


def test_a_session_that_nothing_is_left_of_is_closed_and_leaves_its_place_to_others() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        made = services(cluster)
        opened = session_in(made, TOPIC, 12, (0, 0))
        forgetting = fetch_request(
            [], max_wait_ms=60_000, session_id=opened.session_id, session_epoch=1, forgotten=[(TOPIC, [0])]
        )
        answer = fetch.handle(context(made, 1, 12), memoryview(encode_request(12, forgetting)), 0)
        assert isinstance(answer, list | tuple)
        told = parse_response(joined(answer), HEADER_BYTES, 12)
        assert (told.error_code, told.session_id, told.topics) == (0, 0, [])
        assert len(made.sessions) == 0
        later = session_in(made, TOPIC, 12, (opened.session_id, 2))
        assert later.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run(scenario)


def ask_for(made: Services, count: int, session: tuple[int, int], first: int = 0) -> FetchResponse:
    """A fetch of so many partitions, which need not be there."""
    wanted = [FetchPartition(first + index, -1, 0, -1, -1, 1 << 20) for index in range(count)]
    asked = fetch_request([(TOPIC, wanted)], max_wait_ms=0, session_id=session[0], session_epoch=session[1])
    answer = fetch.handle(context(made, 1, 12), memoryview(encode_request(12, asked)), 0)
    assert isinstance(answer, list | tuple)
    return parse_response(joined(answer), HEADER_BYTES, 12)


def test_sessions_of_very_many_partitions_are_not_all_remembered() -> None:
    async def scenario() -> None:
        made = services(Cluster(2))
        made.sessions.partitions_max = 1000
        first = ask_for(made, 600, (0, 0))
        assert (first.session_id > 0, made.sessions.partitions_cached) == (True, 600)
        second = ask_for(made, 600, (0, 0))
        assert (second.error_code, second.session_id, len(second.topics[0][1])) == (0, 0, 600)
        assert (len(made.sessions), made.sessions.partitions_cached) == (1, 600)
        assert ask_for(made, 300, (first.session_id, 1), first=600).error_code == 0
        assert made.sessions.partitions_cached == 900
        grown = ask_for(made, 300, (first.session_id, 2), first=900)
        assert grown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (len(made.sessions), made.sessions.partitions_cached) == (0, 0)

    run(scenario)


@pytest.mark.parametrize(("count", "found"), [(90_000, 9_281), (5_000, 5_000)])
def test_a_request_for_far_more_partitions_than_there_are_holds_up_nobody(count: int, found: int) -> None:
    async def scenario() -> None:
        made = services(Cluster(2))
        asked = [FetchPartition(index, -1, 0, -1, -1, 1 << 20) for index in range(count)]
        frame = memoryview(encode_request(12, fetch_request([(TOPIC, asked)], max_wait_ms=0, session_epoch=0)))
        with pytest.raises(MalformedMessageError, match=f"a fetch of {found // 100}.. partitions or more, where there"):
            fetch.handle(context(made, 1, 12), frame, 0)
        assert len(made.sessions) == 0
        assert len(ask_for(made, 1_900, (0, 0)).topics[0][1]) == 1_900

    run(scenario)


def test_sessions_that_are_not_used_any_more_make_room_for_the_partitions_of_others() -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        made = services(cluster)
        made.sessions.partitions_max = 1000
        for _ in range(3):
            ask_for(made, 300, (0, 0))
        cluster.replicas[1].clock.ms += 121_000
        assert ask_for(made, 500, (0, 0)).session_id > 0
        assert (len(made.sessions), made.sessions.partitions_cached, made.sessions.evictions) == (2, 800, 2)

    run(scenario)


@pytest.mark.parametrize("isolation_level", [2, -1])
def test_a_reader_with_an_isolation_level_that_nobody_knows_gets_no_uncommitted_records(isolation_level: int) -> None:
    async def scenario() -> None:
        cluster = Cluster(2)
        cluster.produce()
        wanted: list[tuple[TopicKey, list[FetchPartition]]] = [(TOPIC, [FetchPartition(0, -1, 0, -1, -1, 1 << 20)])]
        request = fetch_request(wanted, max_wait_ms=0, isolation_level=isolation_level)
        answer = fetch.handle(context(services(cluster), 1, 12), memoryview(encode_request(12, request)), 0)
        assert isinstance(answer, list | tuple)
        told = parse_response(joined(answer), HEADER_BYTES, 12)
        ((_, (row,)),) = told.topics
        assert told.error_code == row.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert not row.records

    run(scenario)
