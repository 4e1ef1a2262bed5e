"""The coordinators of transactions, and what they do beside keeping records: markers, producer ids, verification.

Theory of operation. When the decision to end a transaction is committed, a marker goes to every partition that it
wrote to. Where all of these are led here, the markers are written at once, in the very call that took the decision, and
the transaction is complete before its producer hears of it; else they are sent (`marker_sending`). A partition that
cannot take its marker now is tried again, with growing pauses, for as long as this broker coordinates; a marker that
comes twice does no harm. A partition that is gone needs no marker: its topic is, or has fewer of them since it was made
anew.

Whoever coordinates after this broker finds the decision in the log and begins again, so nothing here is kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

import structlog

from ottla.core.coordination import AnswerT, Command
from ottla.core.transactions.commands import PendingMarkers, VerifyPartitions
from ottla.core.transactions.records import TransactionRecord
from ottla.core.transactions.shard import TransactionShard
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.coordinator_shard import CoordinatorShard, Effects
from ottla.runtime.coordinators import CoordinatorKind, Coordinators, then

if TYPE_CHECKING:
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.appending import Flushing
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.producer_ids import ProducerIds
    from ottla.runtime.remote_transactions import RemoteTransactions
    from ottla.runtime.world import World

RETRY_MS_MIN: Final = 20
RETRY_MS_MAX: Final = 1_000
MARKERS_PER_TURN_MAX: Final = 32
"""Transactions whose markers are written at once: after a load there may be very many."""
SPARES_MAX: Final = 16

_OVER: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""The partition has seen a later epoch of the producer: the transaction is over there, whoever ended it."""
_NEVER_NEEDED: Final = frozenset({ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})

Results = Mapping[TopicPartition, ErrorCode]
A = TypeVar("A")

log = structlog.get_logger("ottla.coordinators")


class MarkerSender(Protocol):
    """Writes markers where they belong, on this broker or on others."""

    def send(self, markers: PendingMarkers, coordinator_epoch: int) -> Results | Awaitable[Results]:
        """What became of each partition: at once, where all of them are here."""


class TransactionCoordinators:
    """All transaction coordinators of this broker."""

    __slots__ = (
        "_config",
        "_partition_exists",
        "_producer_ids",
        "_remote",
        "_rng",
        "_sender",
        "_spares",
        "_tasks",
        "coordinators",
    )

    def __init__(
        self,
        kind: CoordinatorKind[TransactionRecord],
        world: World,
        table: PartitionTable,
        flushing: Flushing,
        config: Callable[[], BrokerConfig],
        *,
        has_files: Callable[[TopicPartition], bool],
        sender: MarkerSender,
        partition_exists: Callable[[TopicPartition], bool],
        producer_ids: Callable[[], ProducerIds],
        remote: RemoteTransactions | None = None,
    ) -> None:
        self._config = config
        self._remote = remote
        self._sender = sender
        self._partition_exists = partition_exists
        self._producer_ids = producer_ids
        self._rng = world.rng
        self._spares: list[int] = []
        self._tasks: dict[asyncio.Future[Any], None] = {}
        kind = replace(kind, take_effects=self._take_markers)
        self.coordinators = Coordinators(kind, world, table, flushing, config, has_files=has_files)

    def submit(self, transactional_id: str, command: Command[AnswerT]) -> AnswerT | Awaitable[AnswerT]:
        """As `Coordinators.submit`."""
        return self.coordinators.submit(transactional_id, command)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.coordinators.close()

    # -- producer ids

    def submit_with_spare(
        self, transactional_id: str, make: Callable[[int], Command[AnswerT]]
    ) -> AnswerT | Awaitable[AnswerT]:
        """Submit a command that may need a fresh producer id; one whose answer has `spare_used` false is kept."""
        spare = self._spares.pop() if self._spares else self._producer_ids().next_or_none()
        if spare is None:
            return self._submit_with_new_spare(transactional_id, make)
        return then(self.submit(transactional_id, make(spare)), partial(self._keep_unused, spare))

    async def _submit_with_new_spare(self, transactional_id: str, make: Callable[[int], Command[AnswerT]]) -> AnswerT:
        spare = await self._producer_ids().next()
        answer = then(self.submit(transactional_id, make(spare)), partial(self._keep_unused, spare))
        return await answer if asyncio.iscoroutine(answer) else cast(AnswerT, answer)

    def _keep_unused(self, spare: int, answer: A) -> A:
        if not getattr(answer, "spare_used", True) and len(self._spares) < SPARES_MAX:
            self._spares.append(spare)
        return answer

    # -- verification

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        add: bool,
    ) -> Results | Awaitable[Results | None] | None:
        """Whether records for these partitions belong to the producer's transaction; with `add` they do from now on.

        None if they all do. ApiError if none does; where some do, what holds for each. The coordinator that is asked
        may be on another broker.
        """
        if not self.coordinators.are_known:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are no transactions yet; try again")
        if self._remote is not None:
            place = self.coordinators.partition_for(transactional_id)
            asked = self._remote.verify(place, transactional_id, producer_id, producer_epoch, partitions, add=add)
            if asked is not None:
                return then(asked, _verified)
        command = VerifyPartitions(transactional_id, producer_id, producer_epoch, frozenset(partitions), add)
        return then(self.coordinators.submit(transactional_id, command), _verified)

    # -- markers

    def _take_markers(self, coordinator: CoordinatorShard[TransactionRecord]) -> Effects | None:
        due = cast(TransactionShard, coordinator.shard).markers_due()
        return partial(self._send_some, coordinator, deque(due)) if due else None

    def _send_some(self, coordinator: CoordinatorShard[TransactionRecord], due: deque[PendingMarkers]) -> None:
        for _ in range(min(MARKERS_PER_TURN_MAX, len(due))):
            self._send(coordinator, due.popleft(), RETRY_MS_MIN)
        if due:
            asyncio.get_running_loop().call_soon(self._send_some, coordinator, due)

    def _send(self, coordinator: CoordinatorShard[TransactionRecord], markers: PendingMarkers, pause_ms: int) -> None:
        if coordinator.has_resigned:
            return
        try:
            results = self._sender.send(markers, coordinator.epoch)
        except Exception as error:
            self._sent(coordinator, markers, pause_ms, self._failed(markers, error))
            return
        if isinstance(results, Mapping):
            self._sent(coordinator, markers, pause_ms, results)
            return
        task = asyncio.ensure_future(self._sent_later(coordinator, markers, pause_ms, results))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _sent_later(
        self,
        coordinator: CoordinatorShard[TransactionRecord],
        markers: PendingMarkers,
        pause_ms: int,
        sending: Awaitable[Results],
    ) -> None:
        try:
            results = await sending
        except Exception as error:
            results = self._failed(markers, error)
        self._sent(coordinator, markers, pause_ms, results)

    def _sent(
        self, coordinator: CoordinatorShard[TransactionRecord], markers: PendingMarkers, pause_ms: int, results: Results
    ) -> None:
        """Tell the shard what is done, and try the rest again later."""
        done, again = [], []
        for tp in markers.partitions:
            code = results.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is ErrorCode.NONE or code in _NEVER_NEEDED or not self._partition_exists(tp):
                done.append(tp)
                continue
            if code not in _OVER and code is not ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                again.append(tp)
                continue
            log.warning(
                "a transaction marker is not wanted any more",
                transactional_id=markers.transactional_id,
                partition=str(tp),
                reason=code.name,
            )
            if code in _OVER:
                done.append(tp)
        if done and not coordinator.has_resigned:
            try:
                coordinator.submit(markers.written(done))
            except ApiError as error:
                log.warning(
                    "a coordinator could not note its markers",
                    transactional_id=markers.transactional_id,
                    reason=str(error),
                )
        if again:
            pause = pause_ms * self._rng.uniform(0.8, 1.2) / 1000
            markers = markers._replace(partitions=tuple(again))
            next_pause_ms = min(2 * pause_ms, RETRY_MS_MAX)
            asyncio.get_running_loop().call_later(pause, self._send, coordinator, markers, next_pause_ms)

    def _failed(self, markers: PendingMarkers, error: Exception) -> Results:
        log.error("transaction markers failed", transactional_id=markers.transactional_id, exc_info=error)
        return {}


def _verified(results: Results) -> Results | None:
    refused = [(tp, code) for tp, code in results.items() if code is not ErrorCode.NONE]
    if not refused:
        return None
    if len(refused) < len(results):
        return results
    tp, code = refused[0]
    raise ApiError(code, f"{tp} is not part of the transaction; abort it and begin another one")
