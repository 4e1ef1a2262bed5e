"""The topics that the cluster keeps for itself: how they are made when they are needed for the first time.

A topic gets the replication that is configured, but never more than there are brokers to give it: a lone broker has
groups and transactions too. The same goes for min.insync.replicas.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from ottla.core.controller.commands import CreatedTopic, CreateTopics, NewTopic
from ottla.model.configs.topic import TOPIC_CONFIGS
from ottla.model.errors import ApiError, ConfigError, ErrorCode
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.controller import ControllerDriver

SEGMENT_BYTES_MIN: Final = 1 << 20

log = structlog.get_logger("ottla.coordinators")


class InternalTopics:
    """Makes internal topics, each once."""

    __slots__ = ("_config", "_controller", "_image", "_under_way")

    def __init__(
        self,
        controller: ControllerDriver,
        config: Callable[[], BrokerConfig],
        image: Callable[[], MetadataImage],
    ) -> None:
        self._controller = controller
        self._config = config
        self._image = image
        self._under_way: dict[str, asyncio.Future[list[CreatedTopic]]] = {}

    async def ensure(self, name: str) -> None:
        """Return when the topic is there. COORDINATOR_NOT_AVAILABLE if it cannot be made now."""
        if name in self._image().topics:
            return
        creation = self._under_way.get(name)
        if creation is None:
            new_topic = self.new_topic(name)
            creation = asyncio.ensure_future(self._controller.submit(CreateTopics([new_topic])))
            self._under_way[name] = creation
            creation.add_done_callback(lambda _: self._under_way.pop(name, None))
        try:
            outcome = (await asyncio.shield(creation))[0].outcome
        except ApiError as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be created: {error}") from error
        if outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.error("an internal topic could not be created", topic=name, reason=outcome.message)
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be created: {outcome.message or outcome.code}"
            )

    def new_topic(self, name: str) -> NewTopic:
        """The topic as the configs want it and the cluster can have it."""
        config = self._config()
        brokers = sum(broker.active for broker in self._image().brokers.values())
        if name == CONSUMER_OFFSETS_TOPIC:
            wanted, count = config.offsets_topic_replication_factor, config.offsets_topic_num_partitions
            min_insync, segment_bytes = config.min_insync_replicas, config.offsets_topic_segment_bytes
            own = {"compression.type": "producer"}
        elif name == TRANSACTION_STATE_TOPIC:
            wanted, count = config.transaction_state_log_replication_factor, config.transaction_state_log_num_partitions
            min_insync, segment_bytes = config.transaction_state_log_min_isr, config.transaction_state_log_segment_bytes
            own = {"compression.type": "uncompressed", "unclean.leader.election.enable": "false"}
        else:
            return NewTopic(name)
        replication = max(1, min(wanted, brokers))
        if replication < wanted:
            log.info("an internal topic gets fewer replicas", topic=name, wanted=wanted, brokers=brokers)
        if name == TRANSACTION_STATE_TOPIC or min_insync > replication:
            own["min.insync.replicas"] = str(min(min_insync, replication))
        own["cleanup.policy"] = "compact"
        own["segment.bytes"] = str(_allowed_segment_bytes(segment_bytes))
        return NewTopic(name, count, replication, (), list(own.items()))


def _allowed_segment_bytes(wanted: int) -> int:
    """A topic's segments may not be as small as the broker's key allows."""
    try:
        TOPIC_CONFIGS["segment.bytes"].parse(str(wanted))
    except ConfigError:
        return SEGMENT_BYTES_MIN
    return wanted
