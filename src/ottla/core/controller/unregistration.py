"""A broker that will not come back leaves the metadata.

It leaves every ISR and leads nothing any more, as if it were fenced. Its replicas stay where they are written down:
whoever wants them elsewhere moves them. Should it come back after all, it registers as any other.
"""

from __future__ import annotations

from ottla.core.controller.cluster_commands import UnregisterBroker
from ottla.core.controller.commands import Decision
from ottla.core.controller.context import Context
from ottla.core.controller.departures import leave
from ottla.core.controller.elections import Electorate
from ottla.core.controller.records import UnregisterBrokerRecord
from ottla.model.errors import ApiError, ErrorCode


def unregister_broker(context: Context, command: UnregisterBroker) -> Decision[None]:
    """BROKER_ID_NOT_REGISTERED if there is none of this id."""
    broker = context.image.brokers.get(command.broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {command.broker_id} is not currently registered")
    others = {known: other for known, other in context.image.brokers.items() if known != broker.id}
    left = leave(Electorate(context, others), context.image, broker.id)
    return Decision((*left, UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)), None)
