"""Tells the controller which of this broker's directories its replicas are in.

Theory of operation. A broker with one directory has everything there, and the controller knows that by itself. With
several the broker chooses, and reports each choice here: without that the controller could not tell which replicas a
failed directory takes along, and would leave them the lead. What was found at the start is reported where the metadata
says otherwise, as when a person moved a partition between two directories. Reports go together, one request at a time,
until the controller has them. A directory may fail before that: then the report is late, and tells the controller what
the failure has taken along.

A sole replica whose directory is gone has no leader until its place is reported. Where every directory was opened, its
disk was replaced: nobody else has what it had, so it begins anew. Where one could not be opened it may lie there, and
nothing is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from ottla.core.controller.cluster_commands import AssignReplicasToDirectories, ReplicaDirectory
from ottla.core.controller.elections import directory_of
from ottla.core.controller.records import UNASSIGNED_DIRECTORY
from ottla.model.errors import ApiError, ErrorCode, OttlaError

if TYPE_CHECKING:
    from ottla.core.controller.commands import Outcome
    from ottla.core.controller.image import MetadataImage
    from ottla.model.ids import TopicPartition
    from ottla.runtime.log_directories import LogDirectories

log = structlog.get_logger("ottla.storage")

REPLICAS_PER_REQUEST_MAX: Final = 2000
RETRY_SECONDS: Final = 0.5


class Asks(Protocol):
    """The way to the controller."""

    async def submit(self, command: AssignReplicasToDirectories) -> list[tuple[ReplicaDirectory, Outcome]]: ...


class DirectoryAssignments:
    """Reports where replicas are, as long as it runs."""

    __slots__ = ("_broker_epoch", "_channel", "_directories", "_due", "_image", "_node_id", "_task", "_woken")

    def __init__(
        self,
        directories: LogDirectories,
        channel: Asks,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._directories = directories
        self._channel = channel
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._due: dict[TopicPartition, None] = {}
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, found: Iterable[TopicPartition]) -> None:
        """`found` is what is hosted here. With one directory, sole replicas count that the metadata has elsewhere."""
        found = list(found)
        several = len(self._directories.online) > 1
        lost = self._sole_replicas_elsewhere(found)
        for tp in lost:
            if self._directories.directory_of(tp) is None:
                with suppress(ApiError):
                    self._directories.place(tp)
        for tp in found if several else lost:
            self._placed(tp)
        if several or self._due:
            self._directories.on_placed = self._placed
            self._task = asyncio.ensure_future(self._report())

    def _sole_replicas_elsewhere(self, found: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those that the metadata has in a directory that is not here."""
        image, here = self._image(), {UNASSIGNED_DIRECTORY, *(each.directory_id for each in self._directories.online)}
        return [
            tp
            for tp in found
            if (topic := image.topics.get(tp.topic)) is not None
            and tp.partition < len(topic.partitions)
            and (partition := topic.partitions[tp.partition]).replicas == (self._node_id,)
            and directory_of(partition, self._node_id) not in here
        ]

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _placed(self, tp: TopicPartition) -> None:
        self._due[tp] = None
        self._woken.set()

    async def _report(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._due:
                if not await self._report_once():
                    await asyncio.sleep(RETRY_SECONDS)

    async def _report_once(self) -> bool:
        """One request with what is due; False if it should be tried again a little later."""
        asked = self._take_due()
        if not asked:
            return True
        command = AssignReplicasToDirectories(self._node_id, self._broker_epoch(), list(asked.values()))
        try:
            answers = await self._channel.submit(command)
        except OttlaError as error:
            log.info("the controller could not be told where replicas are", reason=str(error))
        except Exception as error:
            # Without this task the controller would never hear of another replica.
            log.error("telling the controller where replicas are failed", exc_info=error)
        else:
            self._take_answers(answers)
            return True
        for tp in asked:
            self._due[tp] = None
        return False

    def _take_due(self) -> dict[TopicPartition, ReplicaDirectory]:
        """What differs from the metadata; it is not due any more."""
        image = self._image()
        asked: dict[TopicPartition, ReplicaDirectory] = {}
        while self._due and len(asked) < REPLICAS_PER_REQUEST_MAX:
            tp, _ = self._due.popitem()
            topic, here = image.topics.get(tp.topic), self._directories.directory_of(tp)
            if here is None or topic is None or tp.partition >= len(topic.partitions):
                continue
            partition = topic.partitions[tp.partition]
            if self._node_id in partition.replicas and directory_of(partition, self._node_id) != here.directory_id:
                asked[tp] = ReplicaDirectory(topic.id, tp.partition, here.directory_id)
        return asked

    def _take_answers(self, answers: Iterable[tuple[ReplicaDirectory, Outcome]]) -> None:
        for (topic_id, index, _), outcome in answers:
            if outcome.code is not ErrorCode.NONE:
                # The replica or the directory is gone meanwhile.
                reason = outcome.code.name
                log.info("the controller refused a replica's directory", topic=topic_id, partition=index, reason=reason)
