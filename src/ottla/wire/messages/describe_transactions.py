"""DescribeTransactions: where transactional ids stand."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.wire.schema import Int16, Int32, Int64, Message, String


class DescribeTransactionsRequest(Message, api_key=65, versions=(0, 0), flexible_since=0):
    """Asks for transactional ids."""

    transactional_ids: Sequence[String]


class TopicData(Message):
    """The partitions of one topic that a transaction has written to."""

    topic: String
    partitions: Sequence[Int32]


class TransactionState(Message):
    """One transactional id; the start is -1 while there is no transaction. Where there is an error all is 0."""

    error_code: Int16 = 0
    transactional_id: String
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: Sequence[TopicData] = []


class DescribeTransactionsResponse(Message, api_key=65, versions=(0, 0), flexible_since=0):
    """One description for each id."""

    throttle_time_ms: Int32 = 0
    transaction_states: Sequence[TransactionState]
