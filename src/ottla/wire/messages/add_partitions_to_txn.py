"""AddPartitionsToTxn: partitions that a transaction is about to write to, or (between brokers) whether it may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, String, ignorable, since, until


class AddPartitionsToTxnTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Sequence[Int32]


class AddPartitionsToTxnTransaction(Message):
    """One transaction; with `verify_only` nothing is added, it is only asked whether the partitions are in it."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: Sequence[AddPartitionsToTxnTopic]


class AddPartitionsToTxnRequest(Message, api_key=24, versions=(0, 5), flexible_since=3):
    """Up to version 3 a client with its one transaction; from 4 on a broker with those of many clients."""

    transactions: Annotated[Sequence[AddPartitionsToTxnTransaction], since(4)] = []
    v3_and_below_transactional_id: Annotated[String, until(3)] = ""
    v3_and_below_producer_id: Annotated[Int64, until(3)] = 0
    v3_and_below_producer_epoch: Annotated[Int16, until(3)] = 0
    v3_and_below_topics: Annotated[Sequence[AddPartitionsToTxnTopic], until(3)] = []


class AddPartitionsToTxnPartitionResult(Message):
    """What became of one partition."""

    partition_index: Int32
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Message):
    """The results of one topic."""

    name: String
    results_by_partition: Sequence[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnResult(Message):
    """The results of one transaction."""

    transactional_id: String
    topic_results: Sequence[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnResponse(Message, api_key=24, versions=(0, 5), flexible_since=3):
    """One result for each partition; from version 4 on the request may also fail as a whole."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(4), ignorable] = 0
    results_by_transaction: Annotated[Sequence[AddPartitionsToTxnResult], since(4)] = []
    results_by_topic_v3_and_below: Annotated[Sequence[AddPartitionsToTxnTopicResult], until(3)] = []
