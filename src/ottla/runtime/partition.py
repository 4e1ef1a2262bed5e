"""One partition as this broker hosts it: its log, its role, its high watermark, and who waits for it.

Theory of operation. A `Partition` is cheap until it is used: its log is opened at first touch, so ten thousand quiet
partitions cost ten thousand small objects and no files. Everything here runs on the loop.

Its role is what the metadata says. A sole replica leads alone (`is_sole`): what is appended is committed. A leader with
followers moves its high watermark as they fetch (`replication`, which is there as soon as the log is open). A follower
appends what its leader wrote and learns the high watermark from it.

What an editor must keep true:
- The high watermark never passes the log end, never goes back except where the log is cut, and no consumer sees beyond
  it. A new leader begins with its own and moves it only by what in-sync followers fetch in its epoch.
- An append is acknowledged only after `append` returned, and, where the topic asks for a flush, after `flush` resolved:
  what is not synced then counts for nothing, so nobody reads what a crash could still take back.
- Watchers are told after the high watermark moved, never before; followers' fetches as soon as the log has grown.
- Who stops to lead tells everybody who waits, at once: nothing is acknowledged by a leader that is none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from ottla.core.replication.leader import LeaderReplication
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH, TopicPartition
from ottla.runtime.replication_waits import ReplicationFuture, ReplicationWaits, Waiter
from ottla.runtime.watching import Watched
from ottla.wire.batch import read_header
from ottla.wire.transaction_marker import build_marker

if TYPE_CHECKING:
    from ottla.core.controller.image import PartitionImage
    from ottla.log.partition_log import Appended, PartitionLog
    from ottla.log.producer_state import ProducerStates
    from ottla.log.segment import Segment
    from ottla.model.configs.resolve import TopicConfig
    from ottla.runtime.neighbours import Neighbours
    from ottla.runtime.topic_counters import TopicCounters
    from ottla.wire.batch import BatchHeader

FOREVER_MS = 10 * 365 * 86_400_000


class Partition(Watched):
    """A replica of one partition."""

    __slots__ = (
        "_deletions",
        "_min_insync",
        "_open_log",
        "_was_sole",
        "counters",
        "gone",
        "high_watermark",
        "index",
        "is_sole",
        "isr",
        "leader_epoch",
        "leader_id",
        "leads",
        "log_or_none",
        "neighbours",
        "partition_epoch",
        "replicas",
        "replication",
        "throttled_replicas",
        "topic",
        "topic_id",
        "waits",
    )

    def __init__(
        self,
        topic: str,
        index: int,
        topic_id: UUID,
        counters: TopicCounters,
        open_log: Callable[[Partition], PartitionLog],
        neighbours: Neighbours,
    ) -> None:
        super().__init__()
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.counters = counters
        self.log_or_none: PartitionLog | None = None
        self.high_watermark = 0
        self.leads = False
        self.is_sole = False
        """It leads, and has no followers: the short way."""
        self._was_sole = False
        """It leads, and had no followers when its log was last written: all that is in it is committed."""
        self.leader_id = -1
        self.leader_epoch = -1
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.replication: LeaderReplication | None = None
        """What a leader knows of its followers; None if it has none, is none, or has not opened its log yet."""
        self.gone = False
        """It is hosted here no longer: whoever still holds it lets go."""
        self.throttled_replicas: tuple[str, ...] = ()
        """`leader.replication.throttled.replicas` of the topic."""
        self._min_insync = 1
        self.waits: ReplicationWaits | None = None
        self._deletions: ReplicationWaits | None = None
        """Who waits until all replicas begin at some offset."""
        self._open_log = open_log
        self.neighbours = neighbours

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.index)

    @property
    def log(self) -> PartitionLog:
        """The log, opened at first touch."""
        log = self.log_or_none
        if log is None:
            log = self._open_log(self)
            self.adopt(log)
        return log

    def adopt(self, log: PartitionLog) -> None:
        """Take over a log that was opened elsewhere. A sole replica's high watermark is its log end."""
        self.log_or_none = log
        if self.is_sole:
            self.high_watermark = log.log_end_offset
            return
        stored = max(self.high_watermark, self.neighbours.stored_high_watermark(self.topic_partition))
        committed = log.log_end_offset if self._was_sole else min(stored, log.log_end_offset)
        self.high_watermark = max(committed, log.log_start_offset)
        self._was_sole = False
        if self.leads:
            self._begin_epoch(log)

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended."""
        log = self.log_or_none or self.log
        if log.producers.first_unstable_offset is None:
            return self.high_watermark
        return max(log.producers.last_stable_offset(self.high_watermark), log.log_start_offset)

    # -- roles, as the metadata says

    def become_leader(self, state: PartitionImage) -> None:
        """Lead, or go on leading, with these replicas, in this epoch. What is known settles no open question."""
        is_new_epoch = not self.leads or state.leader_epoch != self.leader_epoch
        is_news = state.partition_epoch != self.partition_epoch
        self._take(state)
        self.leads = True
        log = self.log_or_none
        self._was_sole = log is None and (self.is_sole or self._was_sole)
        self.is_sole = len(state.replicas) == 1
        if self.is_sole:
            self.replication = None
            if log is not None:
                self._commit(max(_safe_end(log), self.high_watermark))
                self._ask_for_flush(log)
        elif is_new_epoch or self.replication is None:
            self.replication = None
            if log is not None:
                self._begin_epoch(log)
        elif is_news:
            self.replication.min_insync = self._effective_min_insync
            self.replication.take(state.replicas, state.isr, self.neighbours.now_ms())
            self.settle()
        if is_new_epoch:
            self.changed()
            self.grown()

    def become_follower(self, state: PartitionImage) -> None:
        """Another broker leads, or none does (`leader_id` -1)."""
        led, is_new = self.leads, state.leader_epoch != self.leader_epoch
        self._take(state)
        self.leads = self.is_sole = self._was_sole = False
        self.replication = None
        if led:
            self._fail_waits(f"{self.topic_partition} has another leader now")
        if led or is_new:
            self.let_watchers_go()

    def let_go(self) -> None:
        """It is hosted here no longer; whoever waits on it learns at once."""
        self.gone = True
        self.leads = self.is_sole = False
        self.replication = None
        self._fail_waits(f"{self.topic_partition} is not here any more")
        self.let_watchers_go()

    def _take(self, state: PartitionImage) -> None:
        self.leader_id, self.leader_epoch = state.leader, state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas, self.isr = state.replicas, state.isr

    def _begin_epoch(self, log: PartitionLog) -> None:
        """Lead from the end of the log on, with followers of whom nothing is known yet."""
        start_offset = log.log_end_offset
        log.epochs.assign(self.leader_epoch, start_offset)
        self.replication = LeaderReplication(
            self.leader_id,
            self.replicas,
            self.isr,
            epoch_start_offset=start_offset,
            high_watermark=self.high_watermark,
            min_insync=self._effective_min_insync,
            lag_ms_max=self.neighbours.lag_ms_max,
            is_eligible=self.neighbours.is_eligible,
            now_ms=self.neighbours.now_ms(),
        )
        self.settle()
        self._ask_for_flush(log)

    def _ask_for_flush(self, log: PartitionLog) -> None:
        """Have synced what came before this leader: no append of its own would ask for it."""
        if log.flush_due():
            self.neighbours.on_flush_due(self)

    # -- appending as a leader

    def append(self, batch: memoryview, header: BatchHeader, now_ms: int) -> Appended:
        """Write one checked batch. Where the topic asks for a flush, the caller waits for it before it answers.

        ApiError NOT_LEADER_OR_FOLLOWER if another broker leads by now.
        """
        if not self.is_sole:
            self.check_leads()
        log = self.log_or_none or self.log
        appended = log.append(batch, header, self.leader_epoch, now_ms)
        if not appended.duplicate:
            self._appended(log, header.record_count, len(batch))
        return appended

    def append_next(self, batch: memoryview, header: BatchHeader) -> int | None:
        """`append_run` of one batch."""
        if not self.is_sole:
            self.check_leads()
        log, records = self.log_or_none or self.log, header[12]
        if log.log_end_offset + records - log.recovery_point >= log.flush_messages:
            return None
        base_offset = log.append_next(batch, header, self.leader_epoch)
        if base_offset is not None:
            self._appended(log, records, len(batch))
        return base_offset

    def append_run(
        self, batches: bytearray | list[memoryview], headers: Sequence[BatchHeader], records: int, size: int
    ) -> int | None:
        """Write checked batches in one piece; the offset of the first, or None if they must be appended one by one."""
        if not self.is_sole:
            self.check_leads()
        log = self.log_or_none or self.log
        if log.log_end_offset + records - log.recovery_point >= log.flush_messages:
            return None
        base_offset = log.append_run(batches, headers, self.leader_epoch)
        if base_offset is not None:
            self._appended(log, records, size)
        return base_offset

    def _appended(self, log: PartitionLog, records: int, size: int) -> None:
        counters = self.counters
        counters.messages_in += records
        counters.bytes_in += size
        if not self.is_sole:
            if self.replication is not None and self.replication.is_alone:
                self.settle()
            if self.follower_watchers:
                self.grown()
            return
        end_offset = log.log_end_offset
        if end_offset - log.recovery_point < log.flush_messages:
            self.high_watermark = end_offset
            if self.watchers:
                self.changed()

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

    def check_leads(self) -> None:
        if not self.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has its leader elsewhere")

    def check_in_sync(self, min_insync: int) -> None:
        """Refuse what is to be on so many replicas while fewer are in sync. More than there are is asked of nobody."""
        if len(self.isr) < min_insync and len(self.isr) < len(self.replicas):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"in sync are {len(self.isr)} of {len(self.replicas)} replicas of {self.topic_partition}, "
                f"min.insync.replicas is {min_insync}",
            )

    @property
    def is_under_min_insync(self) -> bool:
        """Fewer replicas are in sync than the topic asks for."""
        return len(self.isr) < self._effective_min_insync

    @property
    def _effective_min_insync(self) -> int:
        return min(self._min_insync, len(self.replicas))

    # -- committing

    def follower_fetched(
        self, replica_id: int, broker_epoch: int, fetch_offset: int, log_start_offset: int, now_ms: int
    ) -> None:
        """A follower that shares this log's past has everything below `fetch_offset`. `now_ms` is `Neighbours`'."""
        log = self.log_or_none or self.log
        replication = self.replication
        if replication is None:
            self.check_leads()
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.topic_partition} has one replica, as far as is known"
            )
        end_offset = log.log_end_offset
        may_join = replication.fetched(replica_id, broker_epoch, fetch_offset, log_start_offset, end_offset, now_ms)
        if end_offset - log.recovery_point >= log.flush_messages:
            end_offset = log.recovery_point
        high_watermark = replication.advance(end_offset, now_ms)
        if high_watermark > self.high_watermark:
            self._commit(high_watermark)
        if may_join:
            self.neighbours.on_isr_due(self)
        if self._deletions is not None:
            self._deletions.release(self.low_watermark)

    def settle(self) -> None:
        """Move the high watermark as far as it goes by what is known now."""
        log, replication = self.log_or_none, self.replication
        if log is not None and replication is not None:
            self._commit(replication.advance(_safe_end(log), self.neighbours.now_ms()))
            if self._deletions is not None:
                self._deletions.release(self.low_watermark)

    def advance(self, offset: int) -> None:
        """Everything below `offset` is synced: where that was asked for, let it count."""
        if self.is_sole:
            self._commit(offset)
        else:
            self.settle()

    def _commit(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        log = self.log_or_none
        if log is not None and log.producers.first_unstable_offset is not None:
            log.producers.on_high_watermark(offset)
        if self.waits is not None:
            self.waits.release(offset)
        self.committed()

    def when_replicated(self, end_offset: int, timeout_ms: int, waiter: Waiter) -> None:
        """Tell `waiter` once the high watermark has reached `end_offset`, or that it will not in time."""
        if self.high_watermark >= end_offset:
            waiter.replicated()
            return
        self.check_leads()
        if self.waits is None:
            self.waits = ReplicationWaits(asyncio.get_running_loop())
        self.waits.add(end_offset, timeout_ms, waiter)

    @property
    def is_catching_up(self) -> bool:
        """A new leader that does not know yet what the one before it had committed."""
        return self.replication is not None and self.high_watermark < self.replication.epoch_start_offset

    def replicated(self, end_offset: int, timeout_ms: int = FOREVER_MS) -> Awaitable[None]:
        """Wait until the high watermark has reached `end_offset`.

        ApiError: NOT_LEADER_OR_FOLLOWER if this broker stops to lead, REQUEST_TIMED_OUT.
        """
        waiter = ReplicationFuture(asyncio.get_running_loop())
        self.when_replicated(end_offset, timeout_ms, waiter)
        return waiter.future

    @property
    def low_watermark(self) -> int:
        """Every replica that lives begins here or later; -1 while that is not known of one that is in sync."""
        start_offset = self.log.log_start_offset
        return start_offset if self.replication is None else self.replication.low_watermark(start_offset)

    def deleted_everywhere(self, offset: int, timeout_ms: int) -> Awaitable[None]:
        """Wait until the low watermark has reached `offset`; ApiError as `replicated`."""
        loop = asyncio.get_running_loop()
        waiter = ReplicationFuture(loop)
        if self.low_watermark >= offset:
            waiter.replicated()
        else:
            if self._deletions is None:
                self._deletions = ReplicationWaits(loop)
            self._deletions.add(offset, timeout_ms, waiter)
        return waiter.future

    def _fail_waits(self, reason: str) -> None:
        waits, self.waits = (self.waits, self._deletions), None
        self._deletions = None
        for waiting in waits:
            if waiting is not None:
                waiting.fail(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason))

    # -- as a follower

    def append_as_follower(
        self, batches: memoryview, leader_high_watermark: int, leader_log_start: int, now_ms: int = 0
    ) -> None:
        """Write what the leader wrote, and learn what is committed and where the log begins.

        ApiError: the batches are not what they should be, or this broker is no follower; what was written before the
        bad one stays.
        """
        if self.leads or self.gone:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not follow on {self.topic_partition}")
        log = self.log_or_none or self.log
        if len(batches):
            before = log.log_end_offset
            log.append_as_follower(batches, now_ms)
            self.counters.bytes_in += len(batches) if log.log_end_offset > before else 0
        self._commit(min(leader_high_watermark, log.log_end_offset))
        if log.log_start_offset < leader_log_start <= self.high_watermark:
            log.begin_at(leader_log_start)  # The files go with retention, which stores the start before.

    def truncate_to(self, offset: int, now_ms: int = 0, producers: ProducerStates | None = None) -> list[Segment]:
        """Cut the log back to `offset`, and the high watermark with it; returns dropped segments for `delete_files`.

        The caller has stored a recovery point that is not above `offset`: else a crash looks like corruption.
        `producers` is what the log's `producers_at` has said in a thread.
        """
        if self.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker leads {self.topic_partition}")
        log = self.log_or_none or self.log
        dropped = log.truncate_to(offset, now_ms, producers)
        self._cut_high_watermark(log)
        return dropped

    def restart_at(self, offset: int, now_ms: int = 0, *, log_start_offset: int | None = None) -> list[Segment]:
        """Forget everything and follow from `offset` on; returns dropped segments for `delete_files`.

        `log_start_offset` is larger where the leader's log begins inside of the batch at `offset`.
        """
        if self.leads:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker leads {self.topic_partition}")
        log = self.log_or_none or self.log
        dropped = log.truncate_fully_and_start_at(offset, now_ms, log_start_offset=log_start_offset)
        self._cut_high_watermark(log)
        return dropped

    def _cut_high_watermark(self, log: PartitionLog) -> None:
        self.high_watermark = max(min(self.high_watermark, log.log_end_offset), log.log_start_offset)
        self.changed()

    # -- the rest

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Refuse a client that knows an older or a newer leader than this one."""
        if current_leader_epoch == NO_LEADER_EPOCH or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, f"leader epoch is {self.leader_epoch} by now")
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"leader epoch is only {self.leader_epoch} here")

    def set_config(self, config: TopicConfig) -> None:
        """A changed topic config takes effect with the next append, read or sweep."""
        self._min_insync = config.min_insync_replicas
        self.throttled_replicas = config.leader_replication_throttled_replicas
        if self.replication is not None and self.replication.min_insync != self._effective_min_insync:
            self.replication.min_insync = self._effective_min_insync
            self.settle()
        if self.log_or_none is not None:
            self.log_or_none.config = config


def _safe_end(log: PartitionLog) -> int:
    """Where what may count ends: where a flush is asked for, what is not synced does not."""
    end_offset = log.log_end_offset
    return log.recovery_point if end_offset - log.recovery_point >= log.flush_messages else end_offset
