"""Writing for producers: the checks that a topic's config asks for, and the way to the log.

Theory of operation. The fast way is synchronous: check the header, append, done. Three things make it longer, and then
`append` returns something to wait for:
- the topic asks for a look into the records (`compression.type`, full validation, compaction's need for keys): the
  batch goes to the record worker, another process, and is appended when it comes back;
- the topic asks for a flush: the answer waits for the sync that covers the batch;
- the batch begins a transaction here, and its coordinator has yet to answer (`transaction_verification`).

What is appended here is in this leader's log, no more: whoever is to be told only when followers have it too, waits for
that besides (`Partition.when_replicated`).

Requests with much in them are written together (`Partition.append_run`). Where that fails in part they are served one
by one, and `append` finds what it is asked to write already written (`hand_over`), and answers for it.

What an editor must keep true: batches of one partition are appended in the order in which they arrived. Each batch of
the long way waits for the one before it on its partition, whatever order the worker answers in, and once one batch of
a partition is on the long way the next one takes it too. What was handed over is asked for, in that order, before
anything else is appended, or forgotten together with who would have asked; it was checked as `append` checks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from ottla.log.partition_log import Appended as Appended
from ottla.log.partition_log import new_appended
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import NO_TIMESTAMP
from ottla.wire.batch import TRANSACTIONAL_BIT, BatchHeader, check
from ottla.wire.compression import Codec

if TYPE_CHECKING:
    from ottla.model.configs.resolve import TopicConfig
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic
    from ottla.runtime.transaction_verification import Permit, TransactionalProduce
    from ottla.runtime.world import Clock

WAITING_BYTES_MAX = 256 << 20
"""Bytes of batches that wait at one time; more are refused, and the producer tries again."""


TIMESTAMP_MAX = (1 << 63) - 1


class RecordWork(Protocol):
    """The record worker, as far as appends need it."""

    async def validate(
        self, batch: bytes, *, requires_keys: bool, timestamp_range: tuple[int, int] | None
    ) -> bytes: ...

    async def recompress(self, batch: bytes, codec: int, level: int | None, batch_bytes_max: int) -> bytes: ...


class Flushing(Protocol):
    """Syncs a partition's log in a thread, many waiters at a time."""

    async def flush(self, partition: Partition) -> None: ...


class Appender:
    """All appends of producers."""

    __slots__ = ("_ahead", "_clock", "_flushing", "_waiting_bytes", "_work", "tails")

    def __init__(self, clock: Clock, work: RecordWork, flushing: Flushing) -> None:
        self._clock = clock
        self._work = work
        self._flushing = flushing
        self.tails: dict[Partition, asyncio.Future[Appended]] = {}
        """The last batch of each partition that is on the long way: the next one has to take it, too."""
        self._waiting_bytes = 0
        self._ahead: dict[Partition, deque[Appended]] = {}
        """What is in the log already and will be asked for."""

    def append(
        self,
        topic: HostedTopic,
        partition: Partition,
        batch: memoryview,
        now_ms: int,
        produce: TransactionalProduce | None = None,
    ) -> Appended | Awaitable[Appended]:
        """Append one batch as it came from a producer; `batch` is only valid during the call.

        `produce` is the request that it came with, if that names a transactional id.
        """
        if self._ahead:
            ahead = self._ahead.get(partition)
            if ahead:
                return ahead.popleft()
        header = check(batch)
        _, _, _, _, _, attributes, _, base_timestamp, max_timestamp, _, _, _, _ = header
        config, permit = topic.config, None
        if (
            len(batch) > config.max_message_bytes
            or attributes & TRANSACTIONAL_BIT
            or max_timestamp - now_ms > config.timestamp_after_max_ms
            or now_ms - base_timestamp > config.timestamp_before_max_ms
        ):
            check_against_config(header, config, now_ms)
            if attributes & TRANSACTIONAL_BIT:
                permit = _permit(partition, header, now_ms, produce)
        if (
            topic.is_rewritten
            or (self.tails and partition in self.tails)
            or (permit is not None and permit.waiting is not None)
        ):
            return self._rewrite_in_order(topic, partition, bytes(batch), header, permit)
        if permit is not None:
            permit.check()
        appended = partition.append(batch, header, now_ms)
        if partition.high_watermark <= appended.last_offset and (partition.is_sole or partition.log.flush_due()):
            return self._flushed(partition, appended)
        return appended

    @property
    def has_ahead(self) -> bool:
        """Something was handed over: whoever may be about to ask for it is not to be served later."""
        return bool(self._ahead)

    def hand_over(self, partition: Partition, base_offset: int, headers: list[BatchHeader]) -> None:
        """`append` will be asked to write these next, and they are in the log already."""
        ahead = self._ahead[partition] = deque()
        for header in headers:
            last_offset = base_offset + header[6]
            ahead.append(new_appended((base_offset, last_offset, NO_TIMESTAMP, False)))
            base_offset = last_offset + 1

    def forget_ahead(self) -> None:
        """Those who would have asked for what was handed over have been served, or never will be."""
        self._ahead.clear()

    async def _flushed(self, partition: Partition, appended: Appended) -> Appended:
        await self._flushing.flush(partition)
        return appended

    def hold(self, size: int) -> bool:
        """Whether there is room for so many bytes that are appended later; then `let_go` ends it."""
        if self._waiting_bytes + size > WAITING_BYTES_MAX:
            return False
        self._waiting_bytes += size
        return True

    def let_go(self, size: int) -> None:
        self._waiting_bytes -= size

    def _rewrite_in_order(
        self,
        topic: HostedTopic,
        partition: Partition,
        batch: bytes,
        header: BatchHeader,
        permit: Permit | None,
    ) -> Awaitable[Appended]:
        if not self.hold(len(batch)):
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT, "too many batches wait to be validated or compressed; try again"
            )
        before = self.tails.get(partition)
        task = asyncio.ensure_future(self._rewrite(topic, partition, batch, header, before, permit))
        self.tails[partition] = task
        task.add_done_callback(lambda done: self._rewritten(partition, done, len(batch)))
        return task

    def _rewritten(self, partition: Partition, task: asyncio.Future[Appended], size: int) -> None:
        self.let_go(size)
        if self.tails.get(partition) is task:
            del self.tails[partition]

    async def _rewrite(
        self,
        topic: HostedTopic,
        partition: Partition,
        batch: bytes,
        header: BatchHeader,
        before: asyncio.Future[Appended] | None,
        permit: Permit | None,
    ) -> Appended:
        try:
            rewritten = await self._worked(topic.config, batch, header)
            if permit is not None:
                await permit.granted()
        finally:
            if before is not None:
                await asyncio.wait([before])
        if partition.gone:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name} was deleted meanwhile")
        _check_size(len(rewritten), topic.config)  # Another codec may have made it longer.
        if permit is not None:
            permit.check()
        view = memoryview(bytearray(rewritten))
        appended = partition.append(view, check(view), self._clock.now_ms())
        if partition.high_watermark <= appended.last_offset and (partition.is_sole or partition.log.flush_due()):
            await self._flushing.flush(partition)
        return appended

    async def _worked(self, config: TopicConfig, batch: bytes, header: BatchHeader) -> bytes:
        if config.record_validation_full or config.cleanup_compact:
            times = _timestamp_range(config, self._clock.now_ms())
            batch = await self._work.validate(batch, requires_keys=config.cleanup_compact, timestamp_range=times)
        if config.compression_type == "producer":
            return batch
        wanted = Codec.NONE if config.compression_type == "uncompressed" else Codec[config.compression_type.upper()]
        if wanted == header.codec:
            return batch
        return await self._work.recompress(batch, wanted, _compression_level(config, wanted), config.max_message_bytes)


def _permit(partition: Partition, header: BatchHeader, now_ms: int, produce: TransactionalProduce | None) -> Permit:
    """What the way of a transactional batch depends on."""
    if produce is None:
        raise ApiError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a request with transactional batches must name its transactional id",
        )
    return produce.permit(partition, header, now_ms)


def _timestamp_range(config: TopicConfig, now_ms: int) -> tuple[int, int] | None:
    """Between which times each record has to be dated; None if nobody looks at single records' timestamps."""
    if config.timestamp_type_log_append or not config.record_validation_full:
        return None
    return now_ms - config.timestamp_before_max_ms, min(now_ms + config.timestamp_after_max_ms, TIMESTAMP_MAX)


def _compression_level(config: TopicConfig, codec: Codec) -> int | None:
    if codec == Codec.GZIP:
        return config.compression_gzip_level
    if codec == Codec.LZ4:
        return config.compression_lz4_level
    return config.compression_zstd_level if codec == Codec.ZSTD else None


def check_against_config(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    """What the header alone shows against the topic's limits: raises if one of them is passed.

    Where records are looked at, it is their timestamps that count, and the refusal says which of them.
    """
    _check_size(header.size, config)
    is_dated_by_header = not config.timestamp_type_log_append and not config.record_validation_full
    if is_dated_by_header and (
        header.max_timestamp - now_ms > config.timestamp_after_max_ms
        or (header.base_timestamp != NO_TIMESTAMP and now_ms - header.base_timestamp > config.timestamp_before_max_ms)
    ):
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamps {header.base_timestamp} to {header.max_timestamp} are out of the range that "
            f"message.timestamp.before.max.ms and message.timestamp.after.max.ms allow around {now_ms}",
        )


def _check_size(size: int, config: TopicConfig) -> None:
    if size > config.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}"
        )
