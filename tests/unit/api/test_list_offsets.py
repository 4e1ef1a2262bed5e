"""What a reader of committed transactions is told of offsets lies below the last stable one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import ParamSpec, TypeVar, cast

import pytest

from ottla.api import list_offsets
from ottla.api.context import RequestContext, Services
from ottla.model.errors import ErrorCode
from ottla.runtime.world import World
from ottla.wire.batch import read_header
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.unit.api.turns import Turns
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted
from tests.unit.runtime.metadata import Inline
from tests.unit.runtime.replicas import Cluster

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
UNCOMMITTED, COMMITTED = 0, 1

P = ParamSpec("P")
T = TypeVar("T")


def services_of(partitions: object, world: World) -> Services:
    return cast(Services, SimpleNamespace(partitions=partitions, world=world, lookup=asyncio.Lock()))


def offset(hosted: Hosted, timestamp: int, isolation_level: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])],
    )
    services = services_of(hosted.table, hosted.world)
    ctx = RequestContext(services, 2, 7, 1, "c", "10.0.0.1", "PLAINTEXT")
    (row,) = asyncio.run(list_offsets.handle(ctx, request)).topics[0].partitions
    assert row.error_code == 0
    return row.offset


def test_an_isolation_level_that_nobody_knows_is_not_taken_for_another() -> None:
    hosted, _ = log_with_an_open_transaction()
    for level in (2, -1):
        partitions = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
        topics = [ListOffsetsTopic(name=TOPIC, partitions=partitions)]
        request = ListOffsetsRequest(replica_id=-1, isolation_level=level, topics=topics)
        services = services_of(hosted.table, hosted.world)
        ctx = RequestContext(services, 2, 7, 1, "c", "10.0.0.1", "PLAINTEXT")
        (row,) = asyncio.run(list_offsets.handle(ctx, request)).topics[0].partitions
        assert (row.error_code, row.offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)


def log_with_an_open_transaction() -> tuple[Hosted, int]:
    """Offset 0 is plain, offset 1 of an open transaction and the youngest; its time."""
    hosted = Hosted()
    plain = batch_of(1, timestamp=hosted.clock.ms - 1000)
    hosted.partition().append(memoryview(plain), read_header(plain), hosted.clock.ms)
    hosted.write(7, 0)
    return hosted, hosted.clock.ms


def test_offsets_for_each_isolation_level() -> None:
    hosted, _ = log_with_an_open_transaction()
    assert [offset(hosted, LATEST, level) for level in (UNCOMMITTED, COMMITTED)] == [2, 1]
    assert [offset(hosted, EARLIEST, level) for level in (UNCOMMITTED, COMMITTED)] == [0, 0]
    assert [offset(hosted, MAX_TIMESTAMP, level) for level in (UNCOMMITTED, COMMITTED)] == [1, -1]


def test_a_lookup_by_time_finds_nothing_that_is_not_stable() -> None:
    hosted, now_ms = log_with_an_open_transaction()
    assert [offset(hosted, now_ms - 500, level) for level in (UNCOMMITTED, COMMITTED)] == [1, -1]
    assert [offset(hosted, now_ms - 2000, level) for level in (UNCOMMITTED, COMMITTED)] == [0, 0]
    hosted.end(7, committed=True)
    assert [offset(hosted, now_ms - 500, level) for level in (UNCOMMITTED, COMMITTED)] == [1, 1]


def test_lookups_by_time_leave_threads_to_others() -> None:
    """They take as long as producers made them: a sync of the disk must not wait for all of them."""
    hosted, now_ms = log_with_an_open_transaction()
    at_once: list[int] = []

    class Crowded(Inline):
        """Counts what runs beside each other."""

        running = 0

        async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
            self.running += 1
            at_once.append(self.running)
            try:
                return await super().run(function, *args, **kwargs)
            finally:
                self.running -= 1

    services = services_of(hosted.table, replace(hosted.world, offload=Crowded()))
    ctx = RequestContext(services, 2, 7, 1, "c", "10.0.0.1", "PLAINTEXT")
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=now_ms - 500)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])

    async def ask() -> None:
        answers = await asyncio.gather(*(list_offsets.handle(ctx, request) for _ in range(20)))
        assert {answer.topics[0].partitions[0].offset for answer in answers} == {1}

    asyncio.run(ask())
    assert max(at_once) == 1


def test_others_have_their_turn_while_very_many_offsets_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hosted, turns = Hosted(), Turns(monkeypatch, list_offsets)
    find = turns.counted(hosted.table.leader)
    table = SimpleNamespace(leader=find, find=hosted.table.find)
    services = services_of(table, hosted.world)
    ctx = RequestContext(services, 2, 7, 1, "c", "10.0.0.1", "PLAINTEXT")
    asked = [ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
    names = [f"none-{number}" for number in range(3 * list_offsets.PARTITIONS_PER_TURN)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=asked) for name in names])
    answered = asyncio.run(list_offsets.handle(ctx, request)).topics
    assert {row.partitions[0].error_code for row in answered} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert turns.calls == len(names)
    assert turns.most_calls <= list_offsets.PARTITIONS_PER_TURN


def listed(cluster: Cluster, node_id: int, *, replica_id: int = -1, version: int = 7) -> tuple[int, int]:
    """Error and offset of "latest" at one broker."""
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=LATEST)
    request = ListOffsetsRequest(
        replica_id=replica_id, isolation_level=0, topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])]
    )
    replica = cluster.replicas[node_id]
    services = services_of(replica.table, replica.world)
    ctx = RequestContext(services, 2, version, 1, "c", "10.0.0.1", "PLAINTEXT")
    (row,) = asyncio.run(list_offsets.handle(ctx, request)).topics[0].partitions
    return row.error_code, row.offset


def test_consumers_see_what_is_committed_and_replicas_what_there_is() -> None:
    cluster = Cluster(2)
    cluster.produce(3)
    assert listed(cluster, 1) == (0, 0)
    assert listed(cluster, 1, replica_id=2) == (0, 3)
    assert listed(cluster, 2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert listed(cluster, 2, replica_id=-2) == (0, 0)


def test_a_new_leader_names_no_end_that_might_go_back() -> None:
    cluster = Cluster(2)
    cluster.produce(3)
    fetch = asyncio.Runner()
    with fetch:

        async def replicate() -> None:
            cluster.replicate(2)

        fetch.run(replicate())
        cluster.change(leader=2)
        cluster.publish()
        assert listed(cluster, 2) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert listed(cluster, 2, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert listed(cluster, 2, replica_id=1) == (0, 3)


def answers(hosted: Hosted, *asked: tuple[int, int], version: int = 11) -> list[tuple[int, int]]:
    """Error and offset for each partition and timestamp that is asked for in one request."""
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index, timestamp in asked]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
    services = services_of(hosted.table, hosted.world)
    ctx = RequestContext(services, 2, version, 1, "c", "10.0.0.1", "PLAINTEXT")
    rows = asyncio.run(list_offsets.handle(ctx, request)).topics[0].partitions
    return [(row.error_code, row.offset) for row in rows]


@pytest.mark.parametrize("version", [1, 11])
def test_a_question_from_the_future_is_not_taken_for_a_time(version: int) -> None:
    hosted, _ = log_with_an_open_transaction()
    assert answers(hosted, (0, -7), version=version) == [(ErrorCode.UNSUPPORTED_VERSION, -1)]
    assert answers(hosted, (0, LATEST), version=version) == [(0, 2)]


def test_a_request_that_repeats_itself_holds_up_nobody() -> None:
    hosted, _ = log_with_an_open_transaction()
    count = 30_000
    began = time.process_time()
    found = answers(hosted, *((index // 2, LATEST) for index in range(count)))
    assert found == [(ErrorCode.INVALID_REQUEST, -1)] * count
    assert time.process_time() - began < 3


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, EARLIEST_LOCAL])
def test_a_partition_that_was_never_written_to_has_the_epoch_of_its_leader(timestamp: int) -> None:
    hosted = Hosted()
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=partitions)])
    services = services_of(hosted.table, hosted.world)
    ctx = RequestContext(services, 2, 11, 1, "c", "10.0.0.1", "PLAINTEXT")
    (row,) = asyncio.run(list_offsets.handle(ctx, request)).topics[0].partitions
    assert (row.offset, row.leader_epoch) == (0, 0)
