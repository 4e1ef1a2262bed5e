"""What a topic's config allows a producer to write, whatever way a batch takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from ottla.log.partition_log import Appended
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_TIMESTAMP
from ottla.runtime.record_inline import InlineRecordWork
from ottla.wire.compression import Codec
from tests.unit.log.support import NOW_MS, batch_of
from tests.unit.runtime.hosted import TOPIC, Hosted, run

DAY_MS = 86_400_000
NARROW = TopicConfig(timestamp_before_max_ms=DAY_MS, timestamp_after_max_ms=DAY_MS)


def append(hosted: Hosted, batch: bytearray) -> Appended | Awaitable[Appended]:
    topic, partition = hosted.table.leading(TOPIC, 0)
    return hosted.appender.append(topic, partition, memoryview(batch), NOW_MS)


def hosted_with(config: TopicConfig) -> Hosted:
    hosted = Hosted({TOPIC: config})
    hosted.clock.ms = NOW_MS
    hosted.appender._work = InlineRecordWork(hosted.world.disk)
    return hosted


def test_records_without_a_time_are_neither_too_old_nor_too_young() -> None:
    async def scenario() -> None:
        hosted = hosted_with(NARROW)
        for timestamp in (NO_TIMESTAMP, NOW_MS, NOW_MS - DAY_MS, NOW_MS + DAY_MS):
            assert isinstance(append(hosted, batch_of(timestamp=timestamp)), Appended)

    run(scenario)


@pytest.mark.parametrize("timestamp", [0, NOW_MS - DAY_MS - 1, NOW_MS + DAY_MS + 1])
def test_records_of_another_time_are_refused(timestamp: int) -> None:
    async def scenario() -> None:
        hosted = hosted_with(NARROW)
        with pytest.raises(ApiError) as refused:
            append(hosted, batch_of(timestamp=timestamp))
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
        assert hosted.partition().log.log_end_offset == 0

    run(scenario)


def test_a_batch_that_grows_when_it_is_rewritten_keeps_to_the_limit() -> None:
    async def scenario() -> None:
        small = batch_of(value=bytes(3000), codec=Codec.GZIP)
        hosted = hosted_with(TopicConfig(compression_type="uncompressed", max_message_bytes=len(small)))
        appending = append(hosted, small)
        assert not isinstance(appending, Appended)
        with pytest.raises(ApiError) as refused:
            await appending
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
        assert hosted.partition().log.log_end_offset == 0
        await asyncio.sleep(0)
        after = append(hosted, batch_of())
        assert not isinstance(after, Appended)
        assert (await after).base_offset == 0

    run(scenario)
