"""Which segments a log no longer has to keep. Pure decisions; the log carries them out.

Segments go from the oldest on and never out of turn, for three reasons, asked in this order:
- all of it lies below the log's start offset, which a user has moved (`delete-records`) or replication has;
- the log would still have `retention.bytes` without it;
- its youngest record is older than `retention.ms`.
The last two hold only where `cleanup.policy` has `delete`; a limit of -1 means none.

Nothing at or beyond the high watermark goes. The active segment goes when all of it has expired, and the log starts a
new one first; an empty active segment stays, since a log always has one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.model.configs.resolve import TopicConfig


class AgedSegment(Protocol):
    """A segment as retention sees it. `age_timestamp` may cost a read, and is asked only where it decides."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def age_timestamp(self) -> int:
        """The largest timestamp of its records, or the time of its file if they have none; negative if unknown."""


@dataclass(frozen=True, slots=True)
class Expired:
    """How many segments go, counted from the oldest, and why."""

    below_start: int
    by_size: int
    by_time: int
    needs_roll: bool
    """The active segment is among them: start a new one first."""

    @property
    def count(self) -> int:
        return self.below_start + self.by_size + self.by_time


def expired_segments(
    segments: Sequence[AgedSegment],
    config: TopicConfig,
    *,
    log_start_offset: int,
    log_end_offset: int,
    high_watermark: int,
    now_ms: int,
) -> Expired:
    """What of `segments`, which are all of a log, oldest first, may go now."""
    ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]

    def run_length(start: int, goes: Callable[[int], bool]) -> int:
        """How many segments from `start` on go, none of them out of turn."""
        index = start
        while index < len(segments) and _may_go(segments, ends, index, high_watermark) and goes(index):
            index += 1
        return index - start

    below_start = run_length(0, lambda index: index + 1 < len(segments) and ends[index] <= log_start_offset)
    by_size = by_time = 0
    if config.cleanup_delete:
        bytes_through = list(accumulate(segment.size for segment in segments))
        kept_from = bytes_through[below_start - 1] if below_start else 0
        spare_bytes = bytes_through[-1] - kept_from - config.retention_bytes if config.retention_bytes >= 0 else -1
        by_size = run_length(below_start, lambda index: bytes_through[index] - kept_from <= spare_bytes)
        by_time = run_length(
            below_start + by_size,
            lambda index: _is_older(segments[index].age_timestamp, config.retention_ms, now_ms),
        )
    count = below_start + by_size + by_time
    return Expired(below_start, by_size, by_time, needs_roll=count > 0 and count == len(segments))


def _may_go(segments: Sequence[AgedSegment], ends: Sequence[int], index: int, high_watermark: int) -> bool:
    is_empty_active = index + 1 == len(segments) and segments[index].size == 0
    return ends[index] <= high_watermark and not is_empty_active


def _is_older(age_timestamp: int, retention_ms: int, now_ms: int) -> bool:
    """A segment whose age nobody knows is not old."""
    return retention_ms >= 0 and age_timestamp >= 0 and now_ms - age_timestamp > retention_ms
