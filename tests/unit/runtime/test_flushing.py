"""Syncs: one for all who wait, which nobody's leaving ends, and whose failure each of them hears of."""

from __future__ import annotations

import asyncio

import pytest

from ottla.model.errors import ApiError, ErrorCode, StorageError
from tests.unit.runtime.hosted import Hosted, run


def fail(node: Hosted, error: Exception) -> None:
    def gate(name: str) -> None:
        raise error

    node.offload.gate = gate


def test_one_sync_serves_all_and_does_not_end_with_one_who_leaves() -> None:
    async def scenario() -> None:
        node = Hosted()
        partition = node.partition()
        node.write(7, 0)
        waiting = [asyncio.ensure_future(node.flushes.flush(partition)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.gather(*waiting[1:])
        assert waiting[0].cancelled()
        assert node.offload.calls == ["sync_until"]
        assert partition.log.recovery_point == partition.log.log_end_offset == 1
        await node.flushes.flush(partition)
        assert node.offload.calls == ["sync_until"]

    run(scenario)


def test_what_is_appended_meanwhile_waits_for_the_next_sync() -> None:
    async def scenario() -> None:
        node = Hosted()
        partition = node.partition()
        node.write(7, 0)
        first = asyncio.ensure_future(node.flushes.flush(partition))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        node.write(7, 1)
        second = asyncio.ensure_future(node.flushes.flush(partition))
        await first
        assert partition.log.recovery_point == 1
        await second
        assert partition.log.recovery_point == 2
        assert node.offload.calls == ["sync_until", "sync_until"]

    run(scenario)


def test_a_failed_sync_is_told_to_each_who_waits_and_to_the_owner_once() -> None:
    async def scenario() -> None:
        node = Hosted()
        partition = node.partition()
        node.write(7, 0)
        fail(node, StorageError("/data", "sync failed"))
        waiting = [asyncio.ensure_future(node.flushes.flush(partition)) for _ in range(2)]
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [outcome.code for outcome in outcomes if isinstance(outcome, ApiError)] == [
            ErrorCode.KAFKA_STORAGE_ERROR
        ] * 2
        assert outcomes[0] is not outcomes[1]
        assert len(node.failures) == len(node.offload.calls) == 1
        assert partition.log_or_none is None

    run(scenario)


def test_a_sync_that_nobody_waits_for_may_fail_and_only_the_owner_hears_of_it() -> None:
    async def scenario() -> None:
        node = Hosted()
        node.write(7, 0)
        fail(node, StorageError("/data", "sync failed"))
        node.flushes.begin(node.partition())
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(node.failures) == 1

    run(scenario)


def test_what_nobody_expected_reaches_who_waits_and_the_next_sync_is_another() -> None:
    async def scenario() -> None:
        node = Hosted()
        node.write(7, 0)
        fail(node, RuntimeError("unexpected"))
        with pytest.raises(RuntimeError, match="unexpected"):
            await node.flushes.flush(node.partition())
        node.offload.gate = lambda name: None
        await node.flushes.flush(node.partition())
        assert node.partition().log.recovery_point == 1

    run(scenario)
