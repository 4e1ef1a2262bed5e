"""Fetches of one partition that are like the last one of their connection but for the offset.

Theory of operation. A consumer without fetch sessions that reads one partition of this broker asks for the same each
time, only farther on. So its connection keeps what was found out about the first such request: how the bytes of the
next one are read, which partition they mean, and what its answer looks like (`wire.fetch_repeated`). What is left to do
is to look where the log begins and ends by now, and where the records are.

Only what is answered at once and without anything unusual to say is answered here. Everything else takes the ordinary
way (`api.fetch`), which finds out anew what there is to say.

What an editor must keep true: an answer is, to the byte, what the ordinary way would give. Nothing is kept of a
partition but the object, and that one says itself whether it still leads. So whatever `api.fetch` asks before it
answers is asked here, permissions too once there are such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.log.reading_place import ReadingPlace
from ottla.model.chunks import Chunks
from ottla.model.errors import OttlaError
from ottla.runtime.fetching import READ_COMMITTED

if TYPE_CHECKING:
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.partition import Partition
    from ottla.wire.fetch_repeated import RepeatedAnswer, RepeatedRequest
    from ottla.wire.fetch_types import FetchPartition, FetchRequest

MISSES_MAX: Final = 8
"""Other fetches in a row before one of them is prepared instead: that costs more than it saves once."""


class RepeatedFetch:
    """What one connection asks for again and again."""

    __slots__ = (
        "_after",
        "_answer_after",
        "_answer_before",
        "_answer_end",
        "_before",
        "_bytes_max",
        "_bytes_min",
        "_config",
        "_encode_size",
        "_frame_bytes",
        "_is_committed",
        "_key_and_version",
        "_leader_epoch",
        "_pack",
        "_partition",
        "_place",
        "_unpack",
        "misses",
    )

    def __init__(
        self,
        partition: Partition,
        config: BrokerConfig,
        request: FetchRequest,
        asked: FetchPartition,
        repeated: RepeatedRequest,
        answer: RepeatedAnswer,
    ) -> None:
        self.misses = 0
        """Fetches since the last one that could be answered here."""
        self._partition = partition
        self._place = ReadingPlace()
        self._config = config
        self._frame_bytes, self._unpack, self._key_and_version, self._before, self._after = repeated
        self._pack, self._answer_before, self._answer_after, self._encode_size, self._answer_end = answer
        self._leader_epoch = asked.current_leader_epoch
        self._bytes_max = min(asked.max_bytes, request.max_bytes, config.fetch_max_bytes)
        self._bytes_min = request.min_bytes if request.max_wait_ms > 0 else 0
        self._is_committed = request.isolation_level == READ_COMMITTED

    def answer(self, frame: memoryview, config: BrokerConfig) -> Chunks | None:
        """The answer if the frame is such a fetch and finds records; None if it has to go the ordinary way."""
        if len(frame) != self._frame_bytes or config is not self._config:
            return None
        key_and_version, correlation_id, before, offset, after = self._unpack(frame)
        if before != self._before or after != self._after or key_and_version != self._key_and_version:
            return None
        partition = self._partition
        log = partition.log_or_none
        if log is None or not partition.leads or partition.leader_epoch != self._leader_epoch >= 0:
            return None
        limit = stable = high_watermark = partition.high_watermark
        start = log.log_start_offset
        if log.producers.first_unstable_offset is not None:
            stable = partition.last_stable_offset
            limit = stable if self._is_committed else high_watermark
        if not start <= offset < limit or (self._is_committed and offset <= log.last_aborted_offset):
            return None
        try:
            records = log.read_on(self._place, offset, self._bytes_max, limit)
        except OttlaError:
            return None
        if records is None or records.length < self._bytes_min:
            return None
        self.misses = 0
        size = records.length
        counters = partition.counters
        counters.fetch_requests += 1
        counters.bytes_out += size
        head = self._pack(correlation_id, self._answer_before, high_watermark, stable, start, self._answer_after)
        return [head + self._encode_size(size), records, *self._answer_end]
