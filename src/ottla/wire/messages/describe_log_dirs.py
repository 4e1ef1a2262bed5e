"""DescribeLogDirs: how much each partition takes in which log directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, String, ignorable, since


class DescribableLogDirTopic(Message):
    """Partitions of one topic."""

    topic: String
    partitions: Sequence[Int32]


class DescribeLogDirsRequest(Message, api_key=35, versions=(1, 5), flexible_since=2):
    """Asks for partitions, or with null for all of them."""

    topics: Sequence[DescribableLogDirTopic] | None


class DescribeLogDirsPartition(Message):
    """How much room a replica takes, and how far it lags if it is on its way to another directory."""

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64 = 0
    is_future_key: Bool = False


class DescribeLogDirsTopic(Message):
    """The partitions of one topic."""

    name: String
    partitions: Sequence[DescribeLogDirsPartition]


class DescribeLogDirsResult(Message):
    """One log directory; -1 where the sizes of the file system are not known."""

    error_code: Int16 = 0
    log_dir: String
    topics: Sequence[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, since(4), ignorable] = -1
    usable_bytes: Annotated[Int64, since(4), ignorable] = -1
    is_cordoned: Annotated[Bool, since(5), ignorable] = False


class DescribeLogDirsResponse(Message, api_key=35, versions=(1, 5), flexible_since=2):
    """One result for each log directory."""

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, since(3), ignorable] = 0
    results: Sequence[DescribeLogDirsResult]
