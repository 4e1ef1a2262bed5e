"""Asks the controller for other in-sync replicas: fewer where followers lag, more where they have caught up.

Theory of operation. `core.replication.leader` says which ISR a partition should have. A follower outside the ISR that
fetches makes its partition due at once; all led partitions are looked at every half of `replica.lag.time.max.ms` for
followers that lag. What is due goes to the controller together, one request at a time. Partitions with followers
outside the ISR are looked at more often (`_behind`): a high watermark that waits for one goes on when that one stops.

What an editor must keep true:
- Between question and answer the old and the new ISR count (`LeaderReplication.asked`). When the outcome is not known,
  because the controller was lost, they go on counting, and the same question is asked again.
- That it was granted changes nothing here either, before the metadata says so: the answer may overtake what stands
  before it in the metadata log, such as a higher min.insync.replicas, by which the controller has decided.
- A refusal that means "your metadata is old" changes nothing here: the metadata that comes decides. Only a refusal of
  the new ISR itself takes it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from ottla.core.controller.cluster_commands import AlteredPartition, AlterPartitions, InSyncReplica, PartitionToAlter
from ottla.model.errors import ErrorCode, OttlaError, StorageError

if TYPE_CHECKING:
    from ottla.runtime.partition import Partition
    from ottla.runtime.partitions import PartitionTable

log = structlog.get_logger("ottla.replication")

PARTITIONS_PER_REQUEST_MAX: Final = 1000
PARTITIONS_PER_TURN: Final = 64
BEHIND_CHECK_MS: Final = 500
RETRY_MS: Final = 200
"""Until a question whose answer is not known is asked again, and until another ISR is asked for after a refusal."""
_TAKEN_BACK: Final = frozenset(
    {ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INVALID_REQUEST}
)


class Asks(Protocol):
    """The way to the controller."""

    async def submit(self, command: AlterPartitions) -> list[AlteredPartition]: ...


class _Question(NamedTuple):
    asked: PartitionToAlter
    grows: bool


class IsrChanges:
    """The ISRs of the partitions that this broker leads."""

    __slots__ = (
        "_asked",
        "_behind",
        "_behind_woken",
        "_broker_epoch",
        "_channel",
        "_due",
        "_node_id",
        "_not_before_ms",
        "_table",
        "_tasks",
        "_woken",
        "grown",
        "shrunk",
    )

    def __init__(self, table: PartitionTable, channel: Asks, *, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._table = table
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._due: dict[Partition, None] = {}
        """Partitions that want another ISR."""
        self._asked: dict[Partition, _Question] = {}
        """What was asked for and is not settled."""
        self._behind: dict[Partition, None] = {}
        """Partitions with a follower outside the ISR that has fetched."""
        self._behind_woken = asyncio.Event()
        self._not_before_ms: dict[Partition, int] = {}
        self._woken = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.grown = 0
        self.shrunk = 0

    def start(self) -> None:
        """From now on partitions report here."""
        self._table.neighbours.on_isr_due = self.due
        self._tasks = [asyncio.ensure_future(work) for work in (self._ask(), self._watch_lag(), self._watch_behind())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def due(self, partition: Partition) -> None:
        """A follower outside the ISR has fetched, or may not be waited for any more."""
        self._watch(partition)
        self._look(partition, self._table.neighbours.now_ms())

    def _watch(self, partition: Partition) -> None:
        self._behind[partition] = None
        self._behind_woken.set()

    def _look(self, partition: Partition, now_ms: int) -> None:
        if partition.replication is None or partition.log_or_none is None or now_ms < self._not_before(partition):
            return
        if partition.replication.proposal(partition.log_or_none.log_end_offset, now_ms) is not None:
            self._due[partition] = None
            self._woken.set()

    def _not_before(self, partition: Partition) -> int:
        return self._not_before_ms.get(partition, 0)

    # -- looking

    async def _watch_lag(self) -> None:
        neighbours = self._table.neighbours
        while True:
            await asyncio.sleep(max(neighbours.lag_ms_max / 2, 1) / 1000)
            for number, partition in enumerate(self._table.led()):
                if number % PARTITIONS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if not partition.is_sole and partition.leads:
                    self._open(partition)
                    self._look(partition, neighbours.now_ms())

    def _open(self, partition: Partition) -> None:
        """What has not been touched has no progress to look at."""
        try:
            _ = partition.log
        except StorageError as error:
            self._table.directory_failed(error)
        except OttlaError:
            return  # Whoever wants it is told why.

    async def _watch_behind(self) -> None:
        while True:
            if not self._behind:
                self._behind_woken.clear()
                await self._behind_woken.wait()
            await asyncio.sleep(BEHIND_CHECK_MS / 1000)
            now_ms = self._table.neighbours.now_ms()
            for partition in list(self._behind):
                if partition.replication is None or not partition.replication.has_outsiders:
                    del self._behind[partition]
                    self._not_before_ms.pop(partition, None)
                    continue
                partition.settle()
                self._look(partition, now_ms)

    # -- asking

    async def _ask(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._due or self._asked:
                if not await self._ask_once():
                    await asyncio.sleep(RETRY_MS / 1000)

    async def _ask_once(self) -> bool:
        """Send one request with all that is to be asked; False if it should be tried again a little later."""
        self._drop_settled()
        self._propose()
        asked = self._asked
        if not asked:
            return True
        command = AlterPartitions(self._node_id, self._broker_epoch(), [question.asked for question in asked.values()])
        try:
            self._take_answers(await self._channel.submit(command))
        except OttlaError as error:
            log.info("the controller could not be asked for other in-sync replicas", reason=str(error))
        except Exception as error:
            # Without this task no ISR would ever change again.
            log.error("asking for other in-sync replicas failed", exc_info=error)
        return not asked

    def _propose(self) -> None:
        neighbours = self._table.neighbours
        now_ms = neighbours.now_ms()
        while self._due and len(self._asked) < PARTITIONS_PER_REQUEST_MAX:
            partition, _ = self._due.popitem()
            replication, opened = partition.replication, partition.log_or_none
            isr = None if replication is None or opened is None else replication.proposal(opened.log_end_offset, now_ms)
            if replication is None or isr is None or partition in self._asked:
                continue
            replication.asked(isr)
            asked = PartitionToAlter(
                partition.topic_id,
                partition.index,
                partition.leader_epoch,
                [InSyncReplica(replica, self._epoch_of(partition, replica)) for replica in isr],
                partition.partition_epoch,
            )
            self._asked[partition] = _Question(asked, len(isr) >= len(replication.isr))

    def _epoch_of(self, partition: Partition, replica: int) -> int:
        """The life in which a replica was seen to be in sync."""
        if replica == self._node_id:
            return self._broker_epoch()
        follower = None if partition.replication is None else partition.replication.followers.get(replica)
        if follower is not None and follower.broker_epoch >= 0:
            return follower.broker_epoch
        broker = self._table.neighbours.brokers.get(replica)
        return -1 if broker is None else broker.epoch

    def _drop_settled(self) -> None:
        """Forget what the metadata has decided meanwhile."""
        for partition, (question, _) in list(self._asked.items()):
            if (
                partition.replication is None
                or partition.replication.pending_isr is None
                or (partition.leader_epoch, partition.partition_epoch)
                != (question.leader_epoch, question.partition_epoch)
            ):
                del self._asked[partition]

    def _take_answers(self, answers: Iterable[AlteredPartition]) -> None:
        by_key = {(partition.topic_id, partition.index): partition for partition in self._asked}
        for answer in answers:
            partition = by_key.get((answer.topic_id, answer.index))
            if partition is None:
                continue
            if answer.outcome.code is ErrorCode.NONE:
                self._granted(partition, answer, self._asked.pop(partition).grows)
            elif answer.outcome.code in _TAKEN_BACK:
                self._take_back([partition])
            else:
                log.info(
                    "the controller knows newer metadata",
                    partition=str(partition.topic_partition),
                    reason=answer.outcome.code.name,
                )

    def _granted(self, partition: Partition, answer: AlteredPartition, grows: bool) -> None:
        """Nothing is left but to hear of it from the metadata."""
        self.grown += grows
        self.shrunk += not grows
        event = "in-sync replicas grow" if grows else "in-sync replicas shrink"
        log.info(event, partition=str(partition.topic_partition), isr=list(answer.isr))

    def _take_back(self, partitions: Iterable[Partition]) -> None:
        not_before_ms = self._table.neighbours.now_ms() + RETRY_MS
        for partition in list(partitions):
            del self._asked[partition]
            self._watch(partition)
            self._not_before_ms[partition] = not_before_ms
            if partition.replication is not None:
                partition.replication.refused()
                partition.settle()
