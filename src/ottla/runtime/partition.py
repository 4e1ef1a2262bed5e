"""One partition as this broker leads it: its log, its high watermark, and who waits for it.

Theory of operation. A `Partition` is cheap until it is used: its log is opened at first touch, so ten thousand quiet
partitions cost ten thousand small objects and no files. Everything here runs on the loop.

What an editor must keep true:
- The high watermark never passes the log end, never goes back while this broker leads, and no reader sees beyond it.
- An append is acknowledged only after `append` returned, and, where the topic asks for a flush, after `flush` resolved:
  the high watermark moves at that moment too, so nobody reads what a crash could still take back.
- Watchers are told after the high watermark moved, never before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH, TopicPartition
from ottla.wire.batch import read_header
from ottla.wire.transaction_marker import build_marker

if TYPE_CHECKING:
    from ottla.log.partition_log import Appended, PartitionLog
    from ottla.model.configs.resolve import TopicConfig
    from ottla.wire.batch import BatchHeader


class Watcher(Protocol):
    """Somebody who wants to know that there is more to read."""

    def partition_changed(self) -> None: ...

    def partition_gone(self) -> None: ...


class TopicCounters:
    """What went through a topic since the broker started; plain integers, read by the metrics page."""

    __slots__ = ("bytes_in", "bytes_out", "bytes_rejected", "fetch_requests", "messages_in", "produce_requests")

    def __init__(self) -> None:
        self.messages_in = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.produce_requests = 0
        self.fetch_requests = 0


class Partition:
    """The leader's side of one partition."""

    __slots__ = (
        "_open_log",
        "counters",
        "gone",
        "high_watermark",
        "index",
        "leader_epoch",
        "log_or_none",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        leader_epoch: int,
        counters: TopicCounters,
        open_log: Callable[[Partition], PartitionLog],
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.leader_epoch = leader_epoch
        self.counters = counters
        self.log_or_none: PartitionLog | None = None
        self.high_watermark = 0
        self.gone = False
        """Its topic was deleted: whoever still holds it lets go."""
        self.watchers: dict[Watcher, None] | None = None
        self._open_log = open_log

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def log(self) -> PartitionLog:
        """The log, opened at first touch. A sole replica's high watermark is its log end."""
        log = self.log_or_none
        if log is None:
            log = self._open_log(self)
            self.adopt(log)
        return log

    def adopt(self, log: PartitionLog) -> None:
        """Take over a log that was opened elsewhere."""
        self.log_or_none = log
        self.high_watermark = log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended."""
        log = self.log_or_none or self.log
        if log.producers.first_unstable_offset is None:
            return self.high_watermark
        return max(log.producers.last_stable_offset(self.high_watermark), log.log_start_offset)

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Write one checked batch. Where the topic asks for a flush, the caller waits for it before it answers."""
        log = self.log_or_none or self.log
        appended = log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.duplicate:
            counters = self.counters
            counters.messages_in += header.record_count
            counters.bytes_in += len(batch)
            end_offset = log.log_end_offset
            if end_offset - log.recovery_point < log.flush_messages:
                self.high_watermark = end_offset
                if self.watchers:
                    self.changed()
        return appended

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        committed: bool,
        now_ms: int,
        transaction_version: int = 0,
    ) -> Appended:
        """End a producer's transaction. A marker that ends nothing is written all the same, and harmless.

        ApiError: INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED, and nothing has changed.
        """
        log = self.log_or_none or self.log
        log.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        marker = build_marker(producer_id, producer_epoch, coordinator_epoch, committed=committed, timestamp=now_ms)
        appended = self.append(memoryview(marker), read_header(marker), now_ms)
        log.producers.on_high_watermark(self.high_watermark)
        return appended

    def advance(self, offset: int) -> None:
        """Everything below `offset` is safe: let it be read."""
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.changed()

    def changed(self) -> None:
        """Tell those who wait that there is something new to see."""
        if self.watchers:
            for watcher in self.watchers:
                watcher.partition_changed()

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client that knows an older or a newer leader than this one."""
        if current_leader_epoch == NO_LEADER_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {self.leader_epoch} by now")
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is only {self.leader_epoch} here")

    def watch(self, watcher: Watcher) -> None:
        if self.watchers is None:
            self.watchers = {}
        self.watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        if self.watchers is not None:
            self.watchers.pop(watcher, None)
            if not self.watchers:
                self.watchers = None

    def set_config(self, config: TopicConfig) -> None:
        """A changed topic config takes effect with the next append, read or sweep."""
        if self.log_or_none is not None:
            self.log_or_none.config = config
