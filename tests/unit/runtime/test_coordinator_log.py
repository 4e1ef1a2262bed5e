"""The batches that coordinators write."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.configs.resolve import TopicConfig
from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, OttlaError, StorageError
from ottla.runtime.coordinator_log import CoordinatorLog, build, coordinator_error, encode_all, encode_first
from ottla.wire.batch import TRANSACTIONAL_BIT, read_header
from ottla.wire.records import Record, build_batch, iterate
from tests.unit.runtime.counting import TOPIC, Count, CountingBroker, encode

pairs = st.tuples(st.binary(max_size=300), st.none() | st.binary(max_size=300))


@given(st.lists(pairs, min_size=1, max_size=80), st.sampled_from([-1, 0, 77]), st.integers(0, 4))
def test_a_batch_is_what_the_general_builder_makes(
    given_pairs: list[tuple[bytes, bytes | None]], producer_id: int, codec: int
) -> None:
    epoch = 3 if producer_id >= 0 else -1
    batch = build(b"".join(encode_all(given_pairs)), len(given_pairs), 1234, producer_id, epoch, codec)
    expected = build_batch(
        [Record(offset, 1234, key, value) for offset, (key, value) in enumerate(given_pairs)],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=epoch,
        attributes=TRANSACTIONAL_BIT if producer_id >= 0 else 0,
    )
    assert batch == expected


@given(pairs)
def test_a_batch_of_one_is_no_other(pair: tuple[bytes, bytes | None]) -> None:
    assert [encode_first(*pair)] == list(encode_all([pair]))


def log_of(broker: CountingBroker) -> CoordinatorLog[Count]:
    broker.table.host(broker.topic, broker.topic_config)
    topic = broker.table.topic(TOPIC)
    return CoordinatorLog(topic, broker.partition(), encode, broker.flushes, broker.table.directory_failed)


def stored(broker: CountingBroker) -> list[list[Record]]:
    log, offset, batches = broker.partition().log, 0, []
    while offset < log.log_end_offset:
        found = log.read(offset, 1, log.log_end_offset, at_least_one=True)
        assert found is not None
        batch = found.file.pread(found.length, found.position)
        batches.append(iterate(batch))
        offset = read_header(batch).last_offset + 1
    return batches


def test_records_that_need_not_stand_together_are_parted_by_the_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, topic_config=TopicConfig(cleanup_compact=True, max_message_bytes=200))
        log = log_of(broker)
        records = [Count(f"name {number}", number) for number in range(1, 31)]
        with pytest.raises(ApiError) as refused:
            log.append(records, 1)
        assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert broker.partition().log.log_end_offset == 0
        steps = list(log.append_apart(records, 1))
        assert steps[-1] == (30, 30)
        assert all(written == end for written, end in steps)
        batches = stored(broker)
        assert len(batches) == len(steps) > 1
        assert [record.key for batch in batches for record in batch] == [record.name.encode() for record in records]

    asyncio.run(scenario())


def test_one_record_that_is_too_large_is_refused_either_way(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = CountingBroker(tmp_path, topic_config=TopicConfig(cleanup_compact=True, max_message_bytes=200))
        log = log_of(broker)
        records = [Count("small", 1), Count("large" * 50, 1), Count("small", 2)]
        with pytest.raises(ApiError):
            list(log.append_apart(records, 1))
        assert broker.partition().log.log_end_offset == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_COORDINATOR),
        (ApiError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.NOT_COORDINATOR),
        (StorageError("/d", "broke"), ErrorCode.NOT_COORDINATOR),
        (CorruptLogError("broken"), ErrorCode.NOT_COORDINATOR),
        (ApiError(ErrorCode.MESSAGE_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ApiError(ErrorCode.RECORD_LIST_TOO_LARGE), ErrorCode.UNKNOWN_SERVER_ERROR),
        (ApiError(ErrorCode.INVALID_PRODUCER_EPOCH), ErrorCode.INVALID_PRODUCER_EPOCH),
        (OttlaError("?"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_clients_are_told_what_kafka_tells_them(error: OttlaError, code: ErrorCode) -> None:
    assert coordinator_error(error).code is code
