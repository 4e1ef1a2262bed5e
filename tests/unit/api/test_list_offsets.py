"""What a reader of committed transactions is told of offsets lies below the last stable one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

from ottla.api import list_offsets
from ottla.api.context import RequestContext, Services
from ottla.wire.batch import read_header
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.unit.log.support import batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
UNCOMMITTED, COMMITTED = 0, 1


def offset(hosted: Hosted, timestamp: int, isolation_level: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=TOPIC, partitions=[asked])],
    )
    services = cast(Services, SimpleNamespace(partitions=hosted.table, world=hosted.world))
    ctx = RequestContext(services, 2, 7, 1, "c", "10.0.0.1", "PLAINTEXT")
    (row,) = asyncio.run(list_offsets.handle(ctx, request)).topics[0].partitions
    assert row.error_code == 0
    return row.offset


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
