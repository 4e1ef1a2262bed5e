"""The way of a coordinator's records to its partition: encoded, put into one batch, appended.

The batch does not take the way of producers' batches: a coordinator writes what it has made itself, so there is nothing
to look into, and an append is over when the call returns. Where the topic asks for a flush, or has replicas that do not
have the batch yet, the partition's high watermark says so; whoever answers waits for that.

What goes wrong becomes one of the errors that clients of a coordinator know: COORDINATOR_NOT_AVAILABLE where trying
again helps, NOT_COORDINATOR where the log is lost to this broker, UNKNOWN_SERVER_ERROR where nothing helps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from ottla.model.errors import ApiError, CorruptLogError, ErrorCode, OttlaError, StorageError
from ottla.wire import batch as record_batch
from ottla.wire.batch import HEADER_BYTES, TRANSACTIONAL_BIT, BatchHeader, read_header
from ottla.wire.compression import Codec, compress
from ottla.wire.varint import signed

if TYPE_CHECKING:
    from ottla.runtime.appending import Flushing
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic

RecordT = TypeVar("RecordT")
Encode: TypeAlias = Callable[[RecordT], tuple[bytes, bytes | None]]
"""A record as key and value; no value for a tombstone."""
EncodeAlone: TypeAlias = Callable[[RecordT], bytes]
"""A record as it is in a batch that has no other, as `encode_first` makes it of its key and value."""

_NO_HEADERS: Final = b"\x00"
_NULL_NO_HEADERS: Final = b"\x01\x00"
_FIRST: Final = b"\x00\x00\x00"
"""Attributes, and the deltas of time and offset, of a batch's first record."""

_NOT_AVAILABLE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_NOT_COORDINATOR: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_AS_IT_IS: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED}
    | {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)


class CoordinatorLog(Generic[RecordT]):
    """Writes the records of one coordinator."""

    __slots__ = ("_encode", "_encode_alone", "_flush", "_flushing", "_on_failure", "_topic", "codec", "partition")

    def __init__(
        self,
        topic: HostedTopic,
        partition: Partition,
        encode: Encode[RecordT],
        flushing: Flushing,
        on_failure: Callable[[StorageError], object],
        codec: int = Codec.NONE,
        encode_alone: EncodeAlone[RecordT] | None = None,
    ) -> None:
        self.partition = partition
        self._topic = topic
        self._encode = encode
        self._encode_alone = encode_alone or (lambda record: encode_first(*encode(record)))
        self._flushing = flushing
        self._on_failure = on_failure
        self.codec = codec
        """The compression of what is encoded here."""
        self._flush: asyncio.Future[None] | None = None

    def append(self, records: Sequence[RecordT], now_ms: int, producer_id: int = -1, producer_epoch: int = -1) -> int:
        """Write all records as one batch; where the log ends then. ApiError: nothing has been written."""
        if len(records) == 1:
            encoded = self._encode_alone(records[0])
        else:
            encoded = b"".join(encode_all(map(self._encode, records)))
        return self._append(encoded, len(records), now_ms, producer_id, producer_epoch)

    def append_apart(self, records: Sequence[RecordT], now_ms: int) -> Iterator[tuple[int, int]]:
        """Write records that need not stand together in as many batches as the topic's limit asks for.

        Gives how many records are written, and where the log ends, after each batch. ApiError: no more can be written.
        """
        written, room = 0, self._topic.config.max_message_bytes - HEADER_BYTES
        while written < len(records):
            batch: list[bytes] = []
            size = 0
            for encoded in encode_all(map(self._encode, islice(records, written, None))):
                if batch and size + len(encoded) > room:
                    break
                batch.append(encoded)
                size += len(encoded)
            end = self._append(b"".join(batch), len(batch), now_ms, -1, -1)
            written += len(batch)
            yield written, end

    def _append(self, encoded: bytes, count: int, now_ms: int, producer_id: int, producer_epoch: int) -> int:
        batch = memoryview(build(encoded, count, now_ms, producer_id, producer_epoch, self.codec))
        return self.append_batch(batch, read_header(batch), now_ms)

    def append_batch(self, batch: memoryview, header: BatchHeader, now_ms: int) -> int:
        """Write one batch, whose bytes are free again afterwards; where the log ends then. ApiError as above."""
        partition = self.partition
        try:
            if len(batch) > self._topic.config.max_message_bytes:
                raise ApiError(
                    ErrorCode.RECORD_LIST_TOO_LARGE,
                    f"{header.record_count} records of {partition.topic_partition} have {len(batch)} bytes together, "
                    f"max.message.bytes is {self._topic.config.max_message_bytes}",
                )
            if not partition.is_sole:
                partition.check_in_sync(self._topic.config.min_insync_replicas)
                if partition.gone:
                    raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"topic {partition.topic} was deleted")
            appended = partition.append(batch, header, now_ms)
        except OttlaError as error:
            raise self._refusal(error) from error
        end: int = appended.last_offset + 1
        if partition.high_watermark < end and self._flush is None and partition.log.flush_due():
            self._flush = asyncio.ensure_future(self._flushed())
        return end

    async def _flushed(self) -> None:
        """Have everything synced that was appended, then and meanwhile; the high watermark tells who waits."""
        try:
            while self._is_unsynced():
                await self._flushing.flush(self.partition)
        except OttlaError as error:
            # Who waits for the high watermark waits in vain, and is told so when the time is up.
            self._refusal(error)
        finally:
            self._flush = None

    def _is_unsynced(self) -> bool:
        """Whether something of the log does not count because it is not on disk."""
        partition = self.partition
        if partition.is_sole:
            return partition.high_watermark < partition.log.log_end_offset
        return partition.log.flush_due()

    def _refusal(self, error: OttlaError) -> ApiError:
        if isinstance(error, StorageError):
            self._on_failure(error)
        return coordinator_error(error)


def coordinator_error(error: OttlaError) -> ApiError:
    """What a client is told about a failed append."""
    code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if code in _AS_IT_IS and isinstance(error, ApiError):
        return error
    if code in _NOT_COORDINATOR or isinstance(error, StorageError | CorruptLogError):
        return ApiError(ErrorCode.NOT_COORDINATOR, f"the coordinator has lost its log: {error}")
    if code in _NOT_AVAILABLE:
        return ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the coordinator cannot write now, try again: {error}")
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the coordinator could not write: {error}")


def encode_first(key: bytes, value: bytes | None) -> bytes:
    """The first record of a batch, with the batch's own time."""
    if value is None:
        record = b"".join((_FIRST, signed(len(key)), key, _NULL_NO_HEADERS))
    else:
        record = b"".join((_FIRST, signed(len(key)), key, signed(len(value)), value, _NO_HEADERS))
    return signed(len(record)) + record


def encode_all(pairs: Iterable[tuple[bytes, bytes | None]]) -> Iterator[bytes]:
    """The records of a batch, all with the batch's own time."""
    for delta, (key, value) in enumerate(pairs):
        if not delta:
            yield encode_first(key, value)
            continue
        ending = _NULL_NO_HEADERS if value is None else signed(len(value)) + value + _NO_HEADERS
        record = b"".join((b"\x00\x00", signed(delta), signed(len(key)), key, ending))
        yield signed(len(record)) + record


def build(encoded: bytes, count: int, now_ms: int, producer_id: int, producer_epoch: int, codec: int) -> bytearray:
    """One batch of encoded records. That of a transaction has no sequence: the coordinator sends nothing twice."""
    attributes = codec | TRANSACTIONAL_BIT if producer_id >= 0 else codec
    body = compress(codec, encoded) if codec else encoded
    return record_batch.build(
        body, attributes, count - 1, now_ms, now_ms, count, producer_id=producer_id, producer_epoch=producer_epoch
    )
