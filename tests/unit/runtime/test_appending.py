"""What a topic's config allows a producer to write, whatever way a batch takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace

import pytest

from ottla.log.partition_log import Appended
from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, ErrorCode, InvalidRecordsError
from ottla.model.ids import NO_TIMESTAMP
from ottla.runtime.record_inline import InlineRecordWork
from ottla.wire.batch import crc_matches, read_header, set_max_timestamp
from ottla.wire.compression import Codec
from ottla.wire.records import Record, build_batch
from tests.unit.log.support import NOW_MS, batch_of, read_all
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


FULL = replace(NARROW, record_validation_full=True)


def dated(*timestamps: int) -> bytearray:
    return build_batch([Record(at, timestamp, b"k", b"v") for at, timestamp in enumerate(timestamps)])


@pytest.mark.parametrize(
    ("timestamps", "wrong"),
    [
        ([NOW_MS, NOW_MS - DAY_MS - 1, NO_TIMESTAMP, NOW_MS], [1]),
        ([NOW_MS - DAY_MS - 1, NOW_MS, NOW_MS + DAY_MS + 1], [0, 2]),
    ],
)
def test_full_validation_names_each_record_of_another_time(timestamps: list[int], wrong: list[int]) -> None:
    async def scenario() -> None:
        hosted = hosted_with(FULL)
        appending = append(hosted, dated(*timestamps))
        assert not isinstance(appending, Appended)
        with pytest.raises(InvalidRecordsError) as refused:
            await appending
        assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
        assert [record for record, _ in refused.value.record_errors] == wrong
        assert hosted.partition().log.log_end_offset == 0

    run(scenario)


def test_without_full_validation_only_the_header_is_looked_at() -> None:
    async def scenario() -> None:
        batch = dated(NOW_MS, 0, NOW_MS)
        assert isinstance(append(hosted_with(NARROW), batch), Appended)
        compacted = append(hosted_with(replace(NARROW, cleanup_compact=True)), dated(NOW_MS, 0, NOW_MS))
        assert not isinstance(compacted, Appended)
        assert (await compacted).last_offset == 2

    run(scenario)


@pytest.mark.parametrize("limits", [{}, {"timestamp_after_max_ms": 2**63 - 1, "timestamp_before_max_ms": 2**63 - 1}])
def test_full_validation_takes_what_the_limits_allow(limits: dict[str, int]) -> None:
    async def scenario() -> None:
        hosted = hosted_with(replace(FULL, **limits))
        appending = append(hosted, dated(NOW_MS + DAY_MS, NO_TIMESTAMP, NOW_MS - DAY_MS))
        assert not isinstance(appending, Appended)
        assert (await appending).last_offset == 2

    run(scenario)


@pytest.mark.parametrize("claimed", [NOW_MS - 1, NOW_MS + 5, NOW_MS + 2 * DAY_MS])
def test_full_validation_corrects_a_header_that_lies_about_its_youngest_record(claimed: int) -> None:
    async def scenario() -> None:
        hosted = hosted_with(FULL)
        batch = dated(NOW_MS, NOW_MS + 2, NOW_MS + 1)
        set_max_timestamp(memoryview(batch), claimed)
        appending = append(hosted, batch)
        assert not isinstance(appending, Appended)
        await appending
        log = hosted.partition().log
        (stored,) = read_all(log)
        assert read_header(stored).max_timestamp == NOW_MS + 2
        assert crc_matches(memoryview(stored), read_header(stored))

    run(scenario)


def test_the_brokers_own_time_has_no_bounds() -> None:
    async def scenario() -> None:
        hosted = hosted_with(replace(FULL, timestamp_type_log_append=True))
        appending = append(hosted, dated(5, 7, 6))
        assert not isinstance(appending, Appended)
        assert (await appending).log_append_time_ms == NOW_MS

    run(scenario)
