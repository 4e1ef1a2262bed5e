"""Producer ids, and which life of a broker asks for them."""

from __future__ import annotations

from typing import Final

from ottla.core.controller.commands import AllocateProducerIds, Decision, ProducerIdBlock
from ottla.core.controller.context import Context
from ottla.core.controller.image import BrokerImage
from ottla.core.controller.records import ProducerIdsRecord
from ottla.model.errors import ApiError, ErrorCode

PRODUCER_ID_BLOCK_SIZE: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1


def allocate_producer_ids(context: Context, command: AllocateProducerIds) -> Decision[ProducerIdBlock]:
    """The next block. Once its record is written its ids are never given out again, used or not."""
    check_broker_epoch(context, command.broker_id, command.broker_epoch)
    first = context.image.next_producer_id
    if first > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds.")
    record = ProducerIdsRecord(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
    )
    return Decision((record,), ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE))


def check_broker_epoch(context: Context, broker_id: int, epoch: int) -> BrokerImage:
    """The broker, if it lives the life that it says."""
    broker = context.image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if broker.epoch != epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got {epoch}")
    return broker
