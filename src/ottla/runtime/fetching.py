"""Reading for consumers and followers: what a fetch gets now, and the fetches that wait for more.

Theory of operation. `Fetches.fetch` collects from the dirty partitions of a session. With enough bytes, an error or
no time to wait the answer leaves at once. Else the fetch waits: its partitions wake the session, and all sessions
that were woken in one turn of the loop are looked at together at the end of that turn, after the producer's answer
has left.

A reader of committed transactions gets nothing at or above the last stable offset. That one moves only when the high
watermark does, so the same watchers wake such a fetch, and what comes above it does not end its wait.

A follower reads to the log end (`follower_reading`). What it asks for says what it has, which moves the high watermark
and thereby completes whoever waits for that, before the follower's own answer is made. That one is made after the first
turn in which producers have sent nothing more, or after a few: under load, when many of them wait for the same fetch, a
fetch less is worth more than the moment, and without load the moment is one look at the sockets. Where producers come
back so regularly that they can be counted (`ReplicationWaits.expects_more`) a short answer waits for the last of them,
but for milliseconds.

What an editor must keep true:
- At most one fetch waits on a session. A second one on the same session answers the first with what there is.
- A waiting fetch is completed, timed out or cancelled, and each of the three takes it off its session.
- Collecting has no effect on a session until the answer is really made (`_settle`), so that looking twice is
  harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.model.chunks import FileSlice
from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, OttlaError, StorageError
from ottla.model.limits import ANSWER_SLICES_MAX
from ottla.runtime.fetch_sessions import FetchedPartition, FetchSession, TopicKey
from ottla.runtime.follower_reading import closest_replica, divergence, expects_more, follower_data, has_something
from ottla.runtime.remembered_fetches import RememberedFetches
from ottla.wire.fetch_types import FetchRequest, PartitionData, partition_data

if TYPE_CHECKING:
    from ottla.log.partition_log import PartitionLog
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.topic_counters import TopicCounters
    from ottla.wire.fetch_types import EpochEndOffset

READ_COMMITTED = 1
GATHERING_TURNS_MAX: Final = 8
"""Turns of the loop for which a follower's answer is held back while each of them brings something to send with it."""
GATHERED_MAX: Final = 64
"""Appends that are worth a fetch, whatever else may come."""
HELD_BYTES_MAX: Final = 256 << 10
"""What is longer is not held back for producers that are expected: to copy it takes its time, too."""
_LED_ELSEWHERE: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})

_NO_RECORDS: Final = (-1, None, None, None, None)

Answer = Callable[[list[tuple[TopicKey, list[PartitionData]]]], None]
"""Takes the collected partitions and sends them; called exactly once unless the fetch is cancelled."""


class FetchLimits(NamedTuple):
    """How much a fetch wants and how long it waits for it."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    isolation_level: int
    only_changes: bool
    """In a session after its first fetch: partitions with neither data nor news are left out."""


fetch_limits: Final[Callable[[tuple[int, int, int, int, bool]], FetchLimits]] = partial(tuple.__new__, FetchLimits)
"""What calling the class does, without a Python frame."""


class WaitingFetch:
    """A fetch that has not got enough yet."""

    __slots__ = (
        "_fetches",
        "_gathered",
        "_holding",
        "_queued",
        "_seen",
        "_timer",
        "_turns_left",
        "answer",
        "deadline",
        "limits",
        "session",
    )

    def __init__(self, fetches: Fetches, session: FetchSession, limits: FetchLimits, answer: Answer) -> None:
        self.session = session
        self.limits = limits
        self.answer = answer
        self._fetches = fetches
        self._queued = False
        self._gathered = self._seen = 0
        self._turns_left = GATHERING_TURNS_MAX if session.replica_id >= 0 else 0
        session.waiting = self
        self.deadline = fetches.loop.time() + limits.wait_ms_max / 1000
        self._timer: asyncio.TimerHandle | None = None
        self._holding: asyncio.TimerHandle | None = None
        """Ends that the answer is held back for producers that are expected."""
        if session.lasts:
            if session.timer is None or self.deadline < session.timer_at:
                fetches.watch_time(session, self.deadline)
        else:
            for fetched in session.partitions.values():
                fetched.watch()
            self._timer = fetches.loop.call_at(self.deadline, self.expire)

    def wake(self) -> None:
        self._gathered += 1
        if not self._queued:
            self._queued = True
            self._fetches.enqueue(self)

    def look_again(self) -> None:
        """Answer if there is enough by now; called once per turn of the loop."""
        self._queued = False
        if self.session.waiting is self:
            if self._turns_left and self._seen != self._gathered < GATHERED_MAX:
                self._seen = self._gathered
                self._turns_left -= 1
                self._queued = True
                self._fetches.enqueue(self)
                return
            collected = self._fetches.collect(self.session, self.limits)
            if self._turns_left and collected.may_wait and (seconds := expects_more(self.session)):
                if self._holding is None:
                    self._holding = self._fetches.loop.call_later(seconds, self._held_enough)
            elif collected.is_enough(self.limits):
                self._finish(collected)

    def _held_enough(self) -> None:
        self._turns_left = 0
        if not self._queued:
            self.look_again()

    def expire(self) -> None:
        if self.session.waiting is self:
            self._finish(self._fetches.collect(self.session, self.limits))

    def cancel(self) -> None:
        """The consumer is gone."""
        if self.session.waiting is self:
            self._end()

    def _finish(self, collected: Collected) -> None:
        self._end()
        self.answer(collected.settle())

    def _end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._holding is not None:
            self._holding.cancel()
        self._fetches.release(self.session)


class Collected:
    """What a look at the dirty partitions of a session gave."""

    __slots__ = ("_committed", "_is_follower", "_only_changes", "_rows", "_session", "bytes", "is_urgent")

    def __init__(self, session: FetchSession, limits: FetchLimits) -> None:
        self.bytes = 0
        self.is_urgent = False
        """No reader should wait for this: an error, that it has to go elsewhere or back, or that nothing more fits."""
        self._session = session
        self._is_follower = session.replica_id >= 0
        self._only_changes = limits.only_changes
        self._committed = limits.isolation_level == READ_COMMITTED
        self._rows: list[tuple[FetchedPartition, PartitionData]] = []

    def is_enough(self, limits: FetchLimits) -> bool:
        return self.is_urgent or self.bytes >= limits.bytes_min

    @property
    def may_wait(self) -> bool:
        """Whether a follower loses little if it gets this a moment later."""
        return self.bytes < HELD_BYTES_MAX and not self.is_urgent

    def add(self, fetched: FetchedPartition, data: PartitionData) -> None:
        self._rows.append((fetched, data))
        if data.records is not None:
            self.bytes += data.records.length if isinstance(data.records, FileSlice) else len(data.records)
        elif data.error_code or data.diverging_epoch is not None or data.preferred_read_replica >= 0:
            self.is_urgent = True
        if self._is_follower and fetched.is_behind(data.high_watermark, data.log_start_offset):
            self.is_urgent = True

    def settle(self) -> list[tuple[TopicKey, list[PartitionData]]]:
        """Take the look for the answer: remember what the consumer is told, and whose turn is next."""
        topics: dict[TopicKey, list[PartitionData]] = {}
        dirty = self._session.dirty
        for fetched, data in self._rows:
            if data.error_code:
                fetched.told(-1, -1, -1)
            else:
                news = fetched.has_news(data.high_watermark, data.last_stable_offset, data.log_start_offset)
                if data.records is None and data.diverging_epoch is None:
                    if fetched.fetch_offset >= self._limit(fetched, data):
                        # Else there was no room for its data: it keeps its turn, before those that got some.
                        dirty.pop(fetched, None)
                    if self._only_changes and not news:
                        continue
                elif self._only_changes:
                    dirty.pop(fetched, None)
                    dirty[fetched] = None
                fetched.told(data.high_watermark, data.last_stable_offset, data.log_start_offset)
            if fetched.partition is not None:
                counters = fetched.partition.counters
                counters.fetch_requests += 1
                if isinstance(data.records, FileSlice):
                    counters.bytes_out += data.records.length
            topics.setdefault(fetched.topic, []).append(data)
        return list(topics.items())

    def _limit(self, fetched: FetchedPartition, data: PartitionData) -> int:
        """Where there is nothing more to read for this reader."""
        if self._is_follower:
            log = None if fetched.partition is None else fetched.partition.log_or_none
            return 0 if log is None else log.log_end_offset
        return data.last_stable_offset if self._committed else data.high_watermark


class Fetches:
    """All fetches of a broker."""

    __slots__ = ("_drain_scheduled", "_slices_max", "_table", "_woken", "loop", "remembered")

    def __init__(
        self, table: PartitionTable, loop: asyncio.AbstractEventLoop, slices_max: int = ANSWER_SLICES_MAX
    ) -> None:
        self.loop = loop
        self._table = table
        self._slices_max = slices_max
        self._woken: list[WaitingFetch] = []
        self._drain_scheduled = False
        self.remembered = RememberedFetches()

    def fetch(self, session: FetchSession, limits: FetchLimits, answer: Answer) -> Callable[[], None] | None:
        """Answer now, or wait and return how to cancel the wait."""
        if session.replica_id >= 0 and session.id and limits.wait_ms_max > 0:
            waiting = WaitingFetch(self, session, limits, answer)
            now_ms = self._table.neighbours.now_ms()
            for fetched in list(session.dirty):
                if has_something(fetched, now_ms):
                    waiting.wake()
            return waiting.cancel
        collected = self.collect(session, limits)
        if limits.wait_ms_max <= 0 or collected.is_enough(limits):
            self.release(session)
            answer(collected.settle())
            return None
        return WaitingFetch(self, session, limits, answer).cancel

    def fetch_at_once(self, request: FetchRequest, bytes_max: int) -> list[tuple[TopicKey, list[PartitionData]]] | None:
        """The answer to a fetch without a session if it can be given now and nothing is unusual about it, else None.

        What a session would give, without making one: most fetches find data, and most clients send them like this.
        """
        if request.replica_id >= 0 or bytes_max < 0:
            return None
        committed = request.isolation_level == READ_COMMITTED
        no_aborted = () if committed else None
        room, found, topics = bytes_max, 0, []
        read: list[tuple[TopicCounters, int]] = []
        for key, asked in request.topics:
            rows: list[PartitionData] = []
            for index, leader_epoch, offset, fetched_epoch, _, max_bytes in asked:
                partition = self._table.leading_or_none(key, index)
                log = None if partition is None else partition.log_or_none
                if partition is None or log is None or fetched_epoch >= 0 or max_bytes < 0:
                    return None
                if leader_epoch != partition.leader_epoch and leader_epoch >= 0:
                    return None
                high_watermark, start = partition.high_watermark, log.log_start_offset
                limit = stable = high_watermark
                if log.producers.first_unstable_offset is not None:
                    stable = partition.last_stable_offset
                    limit = stable if committed else high_watermark
                if not start <= offset <= high_watermark:
                    return None
                aborted: Sequence[tuple[int, int]] | None = no_aborted
                if offset >= limit:
                    rows.append(partition_data((index, 0, high_watermark, stable, start, aborted, *_NO_RECORDS)))
                    continue
                try:
                    records = log.read(offset, max_bytes if max_bytes < room else room, limit, not found)
                    if committed and records is not None and offset <= log.last_aborted_offset:
                        aborted = _aborted(log, records, offset, limit)
                except OttlaError:
                    return None
                rows.append(
                    partition_data((index, 0, high_watermark, stable, start, aborted, -1, records, None, None, None))
                )
                if records is not None:
                    found += records.length
                    room = max(room - records.length, 0)
                    read.append((partition.counters, records.length))
                    if len(read) >= self._slices_max:
                        room = 0
            topics.append((key, rows))
        if found < request.min_bytes and request.max_wait_ms > 0 and len(read) < self._slices_max:
            return None
        for counters, size in read:
            counters.fetch_requests += 1
            counters.bytes_out += size
        return topics

    def collect(self, session: FetchSession, limits: FetchLimits) -> Collected:
        """Look at each dirty partition in turn, as long as there is room in the answer."""
        collected = Collected(session, limits)
        room, slices_left = limits.bytes_max, self._slices_max
        for fetched in list(session.dirty):
            data = self._read(fetched, room, limits, at_least_one=collected.bytes == 0)
            before = collected.bytes
            collected.add(fetched, data)
            if data.records is not None:
                room -= collected.bytes - before
                slices_left -= 1
                if not slices_left:
                    room, collected.is_urgent = 0, True
            if room < 0:
                room = 0  # Who asked for less than nothing is told so once, as by Kafka.
        return collected

    def enqueue(self, waiting: WaitingFetch) -> None:
        self._woken.append(waiting)
        if not self._drain_scheduled:
            self._drain_scheduled = True
            self.loop.call_soon(self._drain)

    def watch_time(self, session: FetchSession, deadline: float) -> None:
        """Have a look at a session's waiting fetch then. One timer for many fetches: most of them end before it."""
        if session.timer is not None:
            session.timer.cancel()
        session.timer, session.timer_at = self.loop.call_at(deadline, self._time_passed, session), deadline

    def _time_passed(self, session: FetchSession) -> None:
        session.timer = None
        waiting = session.waiting
        if waiting is not None:
            if waiting.deadline <= session.timer_at:
                waiting.expire()
            else:
                self.watch_time(session, waiting.deadline)

    def release(self, session: FetchSession) -> None:
        """The fetch is over; a session that lives for one request stops watching."""
        waited, session.waiting = session.waiting is not None, None
        if waited and not session.lasts:
            for fetched in session.partitions.values():
                fetched.unwatch()

    def _drain(self) -> None:
        self._drain_scheduled = False
        woken, self._woken = self._woken, []
        for waiting in woken:
            waiting.look_again()

    def _read(self, fetched: FetchedPartition, room: int, limits: FetchLimits, *, at_least_one: bool) -> PartitionData:
        try:
            partition = fetched.partition
            if partition is None:
                find = self._table.hosted if fetched.session.reads_followers else self._table.leader
                partition = fetched.partition = find(fetched.topic, fetched.index)
                if fetched.session.lasts:
                    fetched.watch()
            if fetched.session.replica_id >= 0:
                now_ms = self._table.neighbours.now_ms()
                return follower_data(fetched, partition, room, now_ms, at_least_one=at_least_one)
            return _partition_data(fetched, partition, room, limits.isolation_level, at_least_one=at_least_one)
        except ApiError as error:
            fetched.unwatch()
            if error.code in _LED_ELSEWHERE:
                leader = self._table.current_leader(fetched.topic, fetched.index)
                return PartitionData(fetched.index, error.code, current_leader=leader)
            return _error_data(fetched.index, error.code)
        except StorageError as error:
            fetched.unwatch()
            self._table.directory_failed(error)
            return _error_data(fetched.index, ErrorCode.KAFKA_STORAGE_ERROR)
        except CorruptLogError:
            return _error_data(fetched.index, ErrorCode.KAFKA_STORAGE_ERROR)


def _partition_data(
    fetched: FetchedPartition, partition: Partition, room: int, isolation_level: int, *, at_least_one: bool
) -> PartitionData:
    if fetched.current_leader_epoch >= 0:
        partition.check_leader_epoch(fetched.current_leader_epoch)
    log = partition.log_or_none or partition.log
    last_stable_offset = high_watermark = partition.high_watermark
    if log.producers.first_unstable_offset is not None:
        last_stable_offset = partition.last_stable_offset
    if fetched.last_fetched_epoch >= 0:
        diverging = divergence(fetched, partition)
        if diverging is not None:
            _check_known(fetched, log, diverging)
            return PartitionData(
                fetched.index,
                0,
                high_watermark,
                last_stable_offset,
                log.log_start_offset,
                diverging_epoch=diverging,
            )
    if fetched.session.rack and partition.replication is not None:
        closest = closest_replica(fetched.session.rack, fetched.fetch_offset, partition)
        if closest >= 0:
            start = log.log_start_offset
            return PartitionData(fetched.index, 0, high_watermark, last_stable_offset, start, None, closest)
    limit = last_stable_offset if isolation_level == READ_COMMITTED else high_watermark
    max_bytes = fetched.max_bytes if fetched.max_bytes < room else room
    if max_bytes < 0 and log.log_start_offset <= fetched.fetch_offset < limit:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "fewer than no bytes cannot be read")
    records = log.read(fetched.fetch_offset, max_bytes, limit, at_least_one)
    aborted: Sequence[tuple[int, int]] | None = None
    if isolation_level == READ_COMMITTED:
        aborted = () if records is None else _aborted(log, records, fetched.fetch_offset, limit)
    return PartitionData(
        fetched.index, 0, high_watermark, last_stable_offset, log.log_start_offset, aborted, -1, records
    )


def _check_known(fetched: FetchedPartition, log: PartitionLog, diverging: EpochEndOffset) -> None:
    """A consumer that cannot be told where to go on is told to begin anew."""
    if diverging.epoch < 0 or fetched.fetch_offset < log.log_start_offset:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log begins at {log.log_start_offset}, and where leader epoch {fetched.last_fetched_epoch} ends "
            f"is not known: offset {fetched.fetch_offset} cannot be found",
        )


def _aborted(log: PartitionLog, records: FileSlice, fetch_offset: int, limit: int) -> list[tuple[int, int]]:
    """What a reader of the records has to leave out: producers, and from which offset on."""
    aborted = log.aborted_in(records, fetch_offset, limit)
    return [(transaction.producer_id, transaction.first_offset) for transaction in aborted]


def _error_data(index: int, error: ErrorCode) -> PartitionData:
    return PartitionData(index, error)
