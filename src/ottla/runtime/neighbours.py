"""What the leaders of this broker's partitions must know of the other brokers, and whom they tell what they saw.

One object for all partitions. Time is monotonic here: whoever sets the machine's clock must not shrink an ISR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.core.replication.quota import ReplicationQuota
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.core.controller.image import BrokerImage
    from ottla.runtime.partition import Partition

LAG_MS_MAX_DEFAULT = 30_000


class Neighbours:
    """The other brokers, by the committed metadata."""

    __slots__ = (
        "_monotonic",
        "brokers",
        "lag_ms_max",
        "leader_quota",
        "on_flush_due",
        "on_isr_due",
        "stored_high_watermark",
    )

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        lag_ms_max: int = LAG_MS_MAX_DEFAULT,
        stored_high_watermark: Callable[[TopicPartition], int] = lambda _tp: 0,
    ) -> None:
        self._monotonic = monotonic
        self.brokers: Mapping[int, BrokerImage] = {}
        self.lag_ms_max = lag_ms_max
        self.leader_quota = ReplicationQuota()
        """What throttled followers that are not in sync may be sent; `leader.replication.throttled.rate`."""
        self.stored_high_watermark = stored_high_watermark
        """The high watermark of a replica when it was last stored; asked when its log is opened."""
        self.on_isr_due: Callable[[Partition], None] = _nobody
        """Told when a follower outside the ISR has fetched: it may belong there now."""
        self.on_flush_due: Callable[[Partition], None] = _nobody
        """Told when a leader begins with a log that is not synced although its topic asks for that."""

    def now_ms(self) -> int:
        return int(self._monotonic() * 1000)

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may be in sync: it serves, and in the life that is meant."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active and broker.epoch == broker_epoch


def _nobody(_partition: Partition) -> None:
    pass
