"""The topics that the cluster keeps for itself: how they are made when they are needed for the first time.

A topic gets the replication that is configured, but never more than there are brokers to give it: a lone broker has
groups and transactions too. The same goes for min.insync.replicas. Brokers that are down for the moment count: they
get their replica, and fetch it when they are back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import structlog

from ottla.core.controller.commands import CreatedTopic, CreateTopics, NewTopic
from ottla.model.configs.topic import TOPIC_CONFIGS
from ottla.model.errors import ApiError, ConfigError, ErrorCode
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.runtime.network import PeerError

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.producer_ids import CommandChannel

SEGMENT_BYTES_MIN: Final = 1 << 20
CREATION_SECONDS_MAX: Final = 10.0
ARRIVAL_SECONDS_MAX: Final = 2.0
ARRIVAL_POLL_SECONDS: Final = 0.005

log = structlog.get_logger("ottla.coordinators")


class InternalTopics:
    """Makes internal topics, each once."""

    __slots__ = ("_config", "_controller", "_image", "_under_way")

    def __init__(
        self,
        controller: CommandChannel,
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
            creation.add_done_callback(lambda ended: self._ended(name, ended))
        try:
            async with asyncio.timeout(CREATION_SECONDS_MAX):
                outcome = (await asyncio.shield(creation))[0].outcome
        except (ApiError, PeerError, TimeoutError) as error:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be created: {error}") from error
        if outcome.code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            log.error("an internal topic could not be created", topic=name, reason=outcome.message)
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} could not be created: {outcome.message or outcome.code}"
            )
        if not await topics_arrive(self._image, [name]):
            raise ApiError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name} was created, this broker has yet to hear of it"
            )

    def _ended(self, name: str, creation: asyncio.Future[list[CreatedTopic]]) -> None:
        del self._under_way[name]
        if not creation.cancelled():
            creation.exception()  # Looked at, even if nobody waits any more.

    def new_topic(self, name: str) -> NewTopic:
        """The topic as the configs want it and the cluster can have it."""
        config = self._config()
        brokers = len(self._image().brokers)
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


async def topics_arrive(image: Callable[[], MetadataImage], names: Iterable[str]) -> bool:
    """Whether topics that another node has created are in the metadata here, after a bounded wait."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ARRIVAL_SECONDS_MAX
    wanted = list(names)
    while any(name not in image().topics for name in wanted):
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(ARRIVAL_POLL_SECONDS)
    return True


def _allowed_segment_bytes(wanted: int) -> int:
    """A topic's segments may not be as small as the broker's key allows."""
    try:
        TOPIC_CONFIGS["segment.bytes"].parse(str(wanted))
    except ConfigError:
        return SEGMENT_BYTES_MIN
    return wanted
