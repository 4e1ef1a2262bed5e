"""Asking a transaction's coordinator before its first batch is written to a partition (KIP-890).

Theory of operation. A batch of a transaction that is open on its partition already is written like any other. One that
would begin it is written only if the coordinator says that the partition is part of the transaction, so that there is
somebody who will end it: a transaction that nobody ends would hold up every reader of the partition for good. Clients
of today (Produce 12 and later) leave it to the broker to add the partition; older ones have added it themselves, and
are verified. One question is asked for all partitions of a request.

On one broker the answer is there at once, and the batch goes on in the same turn of the loop. Else it takes the long
way of `appending`, in the order of arrival. Meanwhile a marker may end the transaction that the answer is about. So the
question is noted in the partition's log before it is asked (`log.verifications`), a marker wipes the note out, and
right before the write `Permit.check` looks whether it is still there.

What an editor must keep true:
- Nothing may happen on the loop between `check` and the write.
- The views of the request lead into the receive buffer: nothing that outlives the handler's call may hold them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from ottla.model.errors import ApiError, ErrorCode, OttlaError
from ottla.model.ids import TopicPartition
from ottla.wire.batch import HEADER_BYTES, MAGIC, TRANSACTIONAL_BIT, BatchHeader, read_header

if TYPE_CHECKING:
    from ottla.log.partition_log import Appended
    from ottla.log.verifications import Verification
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.appending import Appender
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import HostedTopic, PartitionTable
    from ottla.runtime.world import Clock

ABORTABLE_SINCE: Final = 11
"""From this version of Produce on clients know TRANSACTION_ABORTABLE."""
ADDS_PARTITIONS_SINCE: Final = 12
"""From this version of Produce on clients leave it to the broker to add partitions, and count from 0 in each one."""

_ASK_LATER: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

Answer: TypeAlias = Mapping[TopicPartition, ErrorCode] | None
"""What a coordinator says of each partition; None, or no word of it, if it has nothing against it."""
Request: TypeAlias = Sequence[tuple[object, Sequence[tuple[int, memoryview | None]]]]


class Verifier(Protocol):
    """The transaction coordinators, as far as producers need them."""

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> Answer | Awaitable[Answer]:
        """Whether the partitions are part of the transaction; with `add` they are from now on. ApiError for all."""


class Permit:
    """What the way of one transactional batch depends on."""

    __slots__ = ("_header", "_is_checked", "_partition", "_verification", "_version", "waiting")

    def __init__(
        self,
        partition: Partition,
        header: BatchHeader,
        version: int,
        verification: Verification | None = None,
        waiting: asyncio.Future[Answer | ApiError] | None = None,
        *,
        is_checked: bool = True,
    ) -> None:
        self._partition = partition
        self._header = header
        self._version = version
        self._verification = verification
        self._is_checked = is_checked
        self.waiting = waiting
        """The coordinator's answer, if it is not there yet."""

    async def granted(self) -> None:
        """Return when the coordinator has agreed; raises if it has not."""
        if self.waiting is not None:
            self.settle(await asyncio.shield(self.waiting))

    def settle(self, answer: Answer | ApiError) -> None:
        """Raise what the answer says about the partition, unless it agrees."""
        if isinstance(answer, ApiError):
            refused = answer
        else:
            code = ErrorCode.NONE if answer is None else answer.get(self._partition.topic_partition, ErrorCode.NONE)
            if code == ErrorCode.NONE:
                return
            refused = ApiError(code)
        error = produce_error(refused, self._version)
        if error.code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
            # The producer will not come back with this batch.
            self._partition.log.producers.verifications.end(self._header.producer_id)
        raise error

    def check(self) -> None:
        """Raise unless the batch may be written now. The write follows at once."""
        if self._is_checked:
            header = self._header
            self._partition.log.producers.check_verified(
                header.producer_id, header.producer_epoch, header.base_sequence, self._verification
            )


class TransactionalProduce:
    """The appends of one produce request that names a transactional id."""

    __slots__ = (
        "_answer",
        "_appender",
        "_clock",
        "_config",
        "_request",
        "_table",
        "_transactional_id",
        "_verifications",
        "_verifier",
        "_verifies",
        "_version",
    )

    def __init__(
        self,
        transactional_id: str,
        version: int,
        request: Request,
        *,
        appender: Appender,
        table: PartitionTable,
        verifier: Verifier,
        clock: Clock,
        config: BrokerConfig,
    ) -> None:
        self._transactional_id = transactional_id
        self._version = version
        self._request = request
        self._appender = appender
        self._table = table
        self._verifier = verifier
        self._clock = clock
        self._config = config
        self._verifications: dict[Partition, Verification | ApiError] = {}
        """Of the partitions that were asked about, or why they need not be."""
        self._answer: Answer | ApiError | asyncio.Future[Answer | ApiError] = None
        self._verifies = self._adds or config.transaction_partition_verification_enable

    @property
    def _adds(self) -> bool:
        return self._version >= ADDS_PARTITIONS_SINCE

    def append(
        self, topic: HostedTopic, partition: Partition, batch: memoryview, now_ms: int
    ) -> Appended | Awaitable[Appended]:
        """As `Appender.append`."""
        return self._appender.append(topic, partition, batch, now_ms, self)

    def permit(self, partition: Partition, header: BatchHeader, now_ms: int) -> Permit:
        """Whether a transactional batch may be written, as far as that is known now. ApiError: it may not."""
        if header.producer_id < 0:
            raise ApiError(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
        if not self._verifies:
            return Permit(partition, header, self._version, is_checked=False)
        if partition.log.producers.has_open_transaction(header.producer_id, header.producer_epoch):
            return Permit(partition, header, self._version)
        if partition not in self._verifications:
            self._ask_for_all(header, now_ms)
        verification = self._verifications[partition]
        if isinstance(verification, ApiError):
            raise verification
        if isinstance(self._answer, asyncio.Future):
            return Permit(partition, header, self._version, verification, self._answer)
        permit = Permit(partition, header, self._version, verification)
        permit.settle(self._answer)
        return permit

    # -- the question

    def _ask_for_all(self, header: BatchHeader, now_ms: int) -> None:
        """Ask about every partition of the request that needs it, the one of `header` among them."""
        batches, self._request = self._transactional_batches(), ()
        producer_id, epoch = header.producer_id, header.producer_epoch
        for _, other in batches:
            if (other.producer_id, other.producer_epoch) != (producer_id, epoch):
                self._answer = ApiError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    f"a produce request is of one producer, this one of {producer_id} and {other.producer_id}",
                )
        for partition, other in batches:
            try:
                producers = partition.log.producers
                self._verifications[partition] = producers.begin_verification(
                    producer_id, epoch, other.base_sequence, now_ms, begins_anew=self._adds
                )
            except ApiError as error:
                self._verifications[partition] = error
            except OttlaError:
                continue  # Its log cannot be opened, which its own batch will hear.
        asked = [tp.topic_partition for tp, begun in self._verifications.items() if not isinstance(begun, ApiError)]
        if asked and self._answer is None:
            self._answer = self._ask(producer_id, epoch, asked)

    def _transactional_batches(self) -> list[tuple[Partition, BatchHeader]]:
        """The batches of the request that would begin a transaction on their partitions."""
        found = []
        for key, partitions in self._request:
            for index, records in partitions:
                partition = self._table.leading_or_none(cast(str, key), index)
                log = None if partition is None else partition.log_or_none
                if partition is None or records is None or len(records) < HEADER_BYTES:
                    continue
                header = read_header(records)
                producer_id, epoch = header.producer_id, header.producer_epoch
                if header.magic != MAGIC or not header.attributes & TRANSACTIONAL_BIT or producer_id < 0:
                    continue
                if log is None or not log.producers.has_open_transaction(producer_id, epoch):
                    found.append((partition, header))
        return found

    def _ask(
        self, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> Answer | ApiError | asyncio.Future[Answer | ApiError]:
        try:
            answer = self._verifier.verify(self._transactional_id, producer_id, epoch, partitions, add=self._adds)
        except ApiError as error:
            if not self._adds or error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                return error
            answer = self._fail_again(error)
        if not hasattr(type(answer), "__await__"):
            return cast(Answer, answer)
        asking = self._ask_until(cast("Awaitable[Answer]", answer), producer_id, epoch, partitions)
        return asyncio.ensure_future(asking)

    @staticmethod
    async def _fail_again(error: ApiError) -> Answer:
        raise error

    async def _ask_until(
        self, answer: Awaitable[Answer], producer_id: int, epoch: int, partitions: Sequence[TopicPartition]
    ) -> Answer | ApiError:
        """The answer; if the transaction before is just being ended, ask again for a moment rather than refuse."""
        config, clock = self._config, self._clock
        until = clock.monotonic() + config.add_partitions_to_txn_retry_backoff_max_ms / 1000
        while True:
            try:
                return await answer
            except ApiError as error:
                is_over = clock.monotonic() >= until
                if is_over or not self._adds or error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    return error
            await asyncio.sleep(config.add_partitions_to_txn_retry_backoff_ms / 1000)
            answer = self._asked_again(producer_id, epoch, partitions)

    async def _asked_again(self, producer_id: int, epoch: int, partitions: Sequence[TopicPartition]) -> Answer:
        answer = self._verifier.verify(self._transactional_id, producer_id, epoch, partitions, add=self._adds)
        return await cast("Awaitable[Answer]", answer) if hasattr(type(answer), "__await__") else cast(Answer, answer)


def produce_error(error: ApiError, version: int) -> ApiError:
    """A coordinator's refusal in words that a producer of this version knows."""
    code = error.code
    if code in _ASK_LATER or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_PARTITIONS_SINCE):
        # Clients ask for the metadata anew on other errors that may pass, and some do not try again.
        return ApiError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"the transaction could not be verified, try again: {code.name}, {error.message}",
        )
    if code is ErrorCode.PRODUCER_FENCED:
        return ApiError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    if code is ErrorCode.INVALID_TXN_STATE or (code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE):
        return ApiError(ErrorCode.INVALID_TXN_STATE, "the partition was not added to the transaction")
    return error
