"""The record of the transaction coordinator as key and value in `__transaction_state`, and back.

A key is `type | transactional id`, a value `version | fields`, the first of each as two bytes; a tombstone has no
value. Version 1 is written, as by Kafka 4.3, whose `kafka-dump-log --transaction-log-decoder` reads it, and version 0
where the cluster's `transaction.version` is 0; 0 and 1 are read.
"""

from __future__ import annotations

import struct
from typing import Final

from ottla.core.transactions.records import TransactionRecord, TransactionState
from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from ottla.wire.schema import EncodeError
from ottla.wire.schema import decode as decode_message
from ottla.wire.schema import encode as encode_message

_KIND: Final = 0
VERSION_WITH_HISTORY: Final = 1
_PREFIX: Final = struct.Struct(">h")


def encode(record: TransactionRecord, version: int = VERSION_WITH_HISTORY) -> tuple[bytes, bytes | None]:
    """The key and the value of a record; ApiError (INVALID_REQUEST) if the id is longer than a key can hold."""
    try:
        key = encode_message(TransactionLogKey(transactional_id=record.transactional_id), 0, _PREFIX.pack(_KIND))
    except EncodeError as error:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"transactional id {record.transactional_id[:100]!r}... cannot be written down ({error}): "
            "it must be shorter than 32768 bytes",
        ) from error
    return key, None if record.gone else encode_message(_value(record, version), version, _PREFIX.pack(version))


def decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record of a key and a value; None for one that nobody here knows or that is damaged. Never raises."""
    try:
        if _PREFIX.unpack_from(key)[0] != _KIND:
            return None
        transactional_id = decode_message(TransactionLogKey, key, 0, 2).transactional_id
        if value is None:
            return TransactionRecord(transactional_id=transactional_id, gone=True)
        version: int = _PREFIX.unpack_from(value)[0]
        return _record(transactional_id, decode_message(TransactionLogValue, value, version, 2))
    except (struct.error, ValueError, MalformedMessageError, ApiError):
        return None


def _value(record: TransactionRecord, version: int) -> TransactionLogValue:
    value = TransactionLogValue(
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        transaction_timeout_ms=record.timeout_ms,
        transaction_status=record.state,
        transaction_partitions=None if record.state is TransactionState.EMPTY else _topics(record.partitions),
        transaction_last_update_timestamp_ms=record.last_update_timestamp,
        transaction_start_timestamp_ms=record.start_timestamp,
    )
    if version >= VERSION_WITH_HISTORY:
        value.previous_producer_id = record.previous_producer_id
        value.next_producer_id = record.next_producer_id
        value.next_producer_epoch = record.next_producer_epoch
        value.client_transaction_version = record.client_transaction_version
    return value


def _topics(partitions: frozenset[TopicPartition]) -> list[PartitionsSchema]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in by_topic.items()]


def _record(transactional_id: str, value: TransactionLogValue) -> TransactionRecord:
    return TransactionRecord(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        producer_epoch=value.producer_epoch,
        next_producer_epoch=value.next_producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        last_update_timestamp=value.transaction_last_update_timestamp_ms,
        start_timestamp=value.transaction_start_timestamp_ms,
        client_transaction_version=value.client_transaction_version,
    )
