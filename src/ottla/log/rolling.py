"""When a segment is old enough to be followed by another one.

By the time of its first batch where records have times: a batch that is `segment.ms` younger begins a new segment.
Where they have none, by the clock since the segment was begun or opened.
"""

from __future__ import annotations

from zlib import crc32

from ottla.log.segment import ASK_BEFORE_APPEND, Segment
from ottla.model.configs.resolve import TopicConfig


def roll_timestamp(segment: Segment, config: TopicConfig) -> int:
    """A batch with a larger timestamp goes to a new segment; or, without times, a value that has every batch ask."""
    first = segment.first_timestamp
    return first + _segment_ms(segment, config) if first >= 0 else ASK_BEFORE_APPEND


def is_old(segment: Segment, config: TopicConfig, timestamp: int, now_ms: int) -> bool:
    """Whether a batch with this timestamp, coming now, goes to a new segment."""
    if not segment.size:
        return False
    if segment.first_timestamp >= 0:
        return timestamp > roll_timestamp(segment, config)
    return now_ms - segment.created_ms > _segment_ms(segment, config)


def _segment_ms(segment: Segment, config: TopicConfig) -> int:
    """`segment.ms` less the jitter, which spreads the rolls of partitions that began at one time.

    A compacted log rolls within `max.compaction.lag.ms` too: only sealed segments are cleaned.
    """
    segment_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.cleanup_compact else config.segment_ms
    jitter_ms = min(config.segment_jitter_ms, segment_ms)
    return segment_ms - (crc32(segment.path.encode()) % jitter_ms if jitter_ms > 0 else 0)
