"""What Fetch, versions 4 to 18, carries: its types, and which version brought which field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from ottla.model.chunks import FileSlice
from ottla.wire.fields import CurrentLeader, TopicKey

API_KEY: Final = 1
VERSION_MIN: Final = 4
VERSION_MAX: Final = 18
LOG_START_OFFSET_SINCE: Final = 5
SESSION_SINCE: Final = 7
LEADER_EPOCH_SINCE: Final = 9
RACK_SINCE: Final = 11
FLEXIBLE_SINCE: Final = 12
TOPIC_ID_SINCE: Final = 13
REPLICA_STATE_SINCE: Final = 15
NODE_ENDPOINTS_SINCE: Final = 16
REPLICA_DIRECTORY_SINCE: Final = 17
HIGH_WATERMARK_SINCE: Final = 18

CLUSTER_ID_TAG: Final = 0
REPLICA_STATE_TAG: Final = 1
REPLICA_DIRECTORY_TAG: Final = 0
HIGH_WATERMARK_TAG: Final = 1
DIVERGING_EPOCH_TAG: Final = 0
CURRENT_LEADER_TAG: Final = 1
SNAPSHOT_ID_TAG: Final = 2

ANY_HIGH_WATERMARK: Final = (1 << 63) - 1
FOLLOWER_END_START: Final = bytes((1, 1, 1, REPLICA_STATE_TAG, 13))
"""Nothing forgotten, no rack, and one tagged field of 13 bytes: how nearly all requests of followers go on after their
topics."""


class FetchPartition(NamedTuple):
    """What a reader wants of one partition; -1 where its version does not say."""

    index: int  # type: ignore[assignment]  # tuple.index is not missed
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FollowerPartition(NamedTuple):
    """What only a follower says about a partition."""

    replica_directory_id: UUID
    high_watermark: int


class FetchRequest(NamedTuple):
    """What a consumer (`replica_id` -1) or a follower asks for.

    `followed` holds the tagged fields of those partitions that have some, by topic and index.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[tuple[TopicKey, list[FetchPartition]]]
    forgotten: list[tuple[TopicKey, list[int]]]
    rack_id: str
    cluster_id: str | None
    replica_epoch: int
    followed: dict[tuple[TopicKey, int], FollowerPartition]


class EpochEndOffset(NamedTuple):
    """Where the leader's log of an epoch ends, below what the follower has."""

    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    """The snapshot that a follower must fetch first."""

    end_offset: int
    epoch: int


class PartitionData(NamedTuple):
    """The answer for one partition. `aborted` are pairs of producer id and first offset, None if nobody asked."""

    index: int  # type: ignore[assignment]  # tuple.index is not missed
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: FileSlice | bytes | bytearray | memoryview | None = None
    diverging_epoch: EpochEndOffset | None = None
    current_leader: CurrentLeader | None = None
    snapshot_id: SnapshotId | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to say but where the log begins and ends."""
        return (
            self.records is None
            and not self.error_code
            and not self.aborted
            and self.preferred_read_replica < 0
            and self.diverging_epoch is None
            and self.current_leader is None
            and self.snapshot_id is None
        )


partition_data: Final[Callable[[tuple[object, ...]], PartitionData]] = partial(tuple.__new__, PartitionData)
"""What calling the class with every field does, without a Python frame."""
