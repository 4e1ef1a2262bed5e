"""What stands in `__transaction_state`: the key and the value of its records.

They are Kafka's own, so that its tools read our log; the api key of these classes is the type of the record, not the
key of a request. On disk a key begins with that type and a value with its version, two bytes each, which are not part
of these classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int8, Int16, Int32, Int64, Message, String, since, tag


class TransactionLogKey(Message, api_key=0, versions=(0, 0)):
    """A transactional id."""

    transactional_id: String


class PartitionsSchema(Message):
    """Partitions of one topic that a transaction writes to."""

    topic: String
    partition_ids: Sequence[Int32]


class TransactionLogValue(Message, api_key=0, versions=(0, 1), flexible_since=1):
    """Where a transactional id stands."""

    producer_id: Int64
    previous_producer_id: Annotated[Int64, since(1), tag(0)] = -1
    next_producer_id: Annotated[Int64, since(1), tag(1)] = -1
    producer_epoch: Int16
    next_producer_epoch: Annotated[Int16, since(1), tag(3)] = -1
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: Sequence[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Annotated[Int16, since(1), tag(2)] = 0
