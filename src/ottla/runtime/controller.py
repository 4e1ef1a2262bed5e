"""Carries commands to the controller, its records to the metadata log, and the answer back when they are committed."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from ottla.core.controller.commands import AnswerT, Command
from ottla.core.controller.controller import Controller
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode, OttlaError, StorageError
from ottla.runtime.quorum import MetadataQuorum


class ControllerDriver:
    """The active controller of the cluster, on top of a quorum that has started."""

    __slots__ = ("_config", "_controller", "_new_uuid", "_quorum")

    def __init__(self, quorum: MetadataQuorum, config: BrokerConfig, new_uuid: Callable[[], UUID]) -> None:
        self._quorum = quorum
        self._config = config
        self._new_uuid = new_uuid
        self._controller = Controller(quorum.image, config, new_uuid)

    async def submit(self, command: Command[AnswerT]) -> AnswerT:
        """The answer, once everything it rests on is committed.

        Raises ApiError where the command is refused as a whole, and where its records cannot be written.
        """
        before = self._controller.image
        decision = self._controller.decide(command, self._quorum.next_offset)
        try:
            if decision.records:
                try:
                    committed = self._quorum.write(decision.records)
                except OttlaError:
                    # Nothing was written, so nothing was decided.
                    self._controller = Controller(before, self._config, self._new_uuid)
                    raise
                await committed
            else:
                await self._quorum.settled()
        except StorageError as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        return decision.answer
