"""A controller on an in-memory log, for tests: every record is kept, so that the log can be replayed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from uuid import UUID

from ottla.core.controller.builder import apply
from ottla.core.controller.cluster_commands import BrokerHeartbeat, FenceBroker, HeartbeatAnswer
from ottla.core.controller.commands import AnswerT, Command, CreatedTopic, CreateTopics, NewTopic, RegisterBroker
from ottla.core.controller.controller import Controller
from ottla.core.controller.features import REGISTERED_FEATURES
from ottla.core.controller.image import MetadataImage, PartitionImage
from ottla.core.controller.records import BrokerEndpoint, Record, SupportedFeature
from ottla.model.configs.resolve import BrokerConfig

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
EMPTY = MetadataImage(cluster_id=CLUSTER_ID)


class Cluster:
    """Brokers 1 to `brokers`, each with one log directory; rack by rack if `racks` are given."""

    def __init__(
        self, brokers: int = 1, config: dict[str, str] | None = None, racks: Sequence[str | None] = (), seed: int = 0
    ) -> None:
        self._random = random.Random(seed)
        self.log: list[Record] = []
        self.controller = Controller(EMPTY, BrokerConfig.from_properties(config), self.new_uuid)
        for broker_id in range(1, brokers + 1):
            self.register(broker_id, rack=racks[broker_id - 1] if racks else None)

    def new_uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128))

    def register(
        self,
        broker_id: int,
        *,
        rack: str | None = None,
        fenced: bool = False,
        clean_start: bool = True,
        log_dirs: Sequence[UUID] = (),
        features: Sequence[SupportedFeature] = REGISTERED_FEATURES,
    ) -> int:
        return self.submit(
            RegisterBroker(
                broker_id=broker_id,
                incarnation_id=self.new_uuid(),
                cluster_id=CLUSTER_ID,
                endpoints=[BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id, 0)],
                features=features,
                rack=rack,
                log_dirs=log_dirs or [UUID(int=1000 + broker_id)],
                fenced=fenced,
                clean_start=clean_start,
            )
        )

    def heartbeat(
        self,
        broker_id: int,
        *,
        offset: int | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline: Sequence[UUID] = (),
    ) -> HeartbeatAnswer:
        """A broker lives, and has seen all metadata unless an offset is given."""
        return self.submit(
            BrokerHeartbeat(
                broker_id=broker_id,
                broker_epoch=self.image.brokers[broker_id].epoch,
                current_metadata_offset=self.image.offset if offset is None else offset,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
                offline_log_dirs=offline,
            )
        )

    def fence(self, broker_id: int) -> bool:
        return self.submit(FenceBroker(broker_id, self.image.brokers[broker_id].epoch))

    def partition(self, topic: str = "t", index: int = 0) -> PartitionImage:
        return self.image.topics[topic].partitions[index]

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    def submit(self, command: Command[AnswerT]) -> AnswerT:
        decision = self.controller.decide(command, len(self.log))
        self.log += decision.records
        return decision.answer

    def create(self, *topics: NewTopic, validate_only: bool = False) -> list[CreatedTopic]:
        return self.submit(CreateTopics(topics, validate_only))

    def replayed(self) -> MetadataImage:
        """The image that the log alone gives."""
        image, _ = apply(EMPTY, self.log, offset=len(self.log) - 1, epoch=self.image.epoch)
        return image
