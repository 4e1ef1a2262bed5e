"""No two producers ever get the same id."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.core.controller.brokers import PRODUCER_ID_BLOCK_SIZE
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.producer_ids import ProducerIds
from tests.unit.runtime.metadata import Node, running


def test_ids_are_unique_across_restarts_and_concurrent_callers(tmp_path: Path) -> None:
    async def life() -> list[int]:
        async with running(tmp_path) as (node, controller):
            ids = ProducerIds(controller, broker_id=1, broker_epoch=node.quorum.image.brokers[1].epoch)
            return list(await asyncio.gather(*(ids.next() for _ in range(2 * PRODUCER_ID_BLOCK_SIZE + 5))))

    given = asyncio.run(life()) + asyncio.run(life())
    assert len(set(given)) == len(given)
    assert min(given) >= 0


def test_a_block_is_fetched_once_for_all_who_wait(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            ids = ProducerIds(controller, broker_id=1, broker_epoch=node.quorum.image.brokers[1].epoch)
            await asyncio.gather(*(ids.next() for _ in range(10)))
            assert node.quorum.image.next_producer_id == PRODUCER_ID_BLOCK_SIZE

    asyncio.run(scenario())


def test_an_id_is_used_only_when_its_block_is_on_disk(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (node, controller):
            ids = ProducerIds(controller, broker_id=1, broker_epoch=node.quorum.image.brokers[1].epoch)
            first = await ids.next()
        again = Node(tmp_path)
        await again.quorum.start()
        assert again.quorum.image.next_producer_id > first

    asyncio.run(scenario())


def test_a_broker_that_was_replaced_gets_no_ids(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (_, controller):
            ids = ProducerIds(controller, broker_id=1, broker_epoch=-5)
            with pytest.raises(ApiError) as refused:
                await ids.next()
            assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH

    asyncio.run(scenario())
