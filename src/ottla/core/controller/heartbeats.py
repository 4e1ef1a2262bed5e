"""A broker lives, wants to serve or to stop, or is gone: decisions on heartbeats and on fencing.

A broker that registered is fenced until a heartbeat says that it has seen its own registration: from then on its view
of the metadata is recent enough to serve. A broker that wants to stop hands over first. Fencing is always safe: who is
fenced leads nothing and is in no ISR, and comes back by a heartbeat if it lives after all.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from ottla.core.controller.brokers import check_broker_epoch
from ottla.core.controller.cluster_commands import BrokerHeartbeat, FenceBroker, HeartbeatAnswer
from ottla.core.controller.commands import Decision
from ottla.core.controller.context import Context
from ottla.core.controller.departures import come_back, hand_over, leave, lose_directories
from ottla.core.controller.elections import Electorate
from ottla.core.controller.image import BrokerImage
from ottla.core.controller.records import BrokerRegistrationChangeRecord, Record


def broker_heartbeat(context: Context, command: BrokerHeartbeat) -> Decision[HeartbeatAnswer]:
    """What becomes of the broker by what it wants; ApiError if it is not the one that is registered."""
    broker = check_broker_epoch(context, command.broker_id, command.broker_epoch)
    is_caught_up = command.current_metadata_offset >= broker.epoch
    left = tuple(d for d in broker.log_dirs if d not in command.offline_log_dirs)
    if command.want_shut_down:
        records, may_stop = _shut_down(context, broker, at_once=command.want_fence)
        return Decision(records, HeartbeatAnswer(is_caught_up, broker.fenced, may_stop))
    if not broker.fenced and (command.want_fence or (broker.log_dirs and not left)):
        return Decision(_fence(context, broker), HeartbeatAnswer(is_caught_up, True, False))
    if left != broker.log_dirs and left:
        return Decision(_lose_directories(context, broker, left), HeartbeatAnswer(is_caught_up, broker.fenced, False))
    if broker.fenced and not command.want_fence and is_caught_up:
        return Decision(_unfence(context, broker), HeartbeatAnswer(True, False, False))
    return Decision((), HeartbeatAnswer(is_caught_up, broker.fenced, False))


def fence_broker(context: Context, command: FenceBroker) -> Decision[bool]:
    """Fence a broker that is gone, if it is still the one that was seen."""
    broker = context.image.brokers.get(command.broker_id)
    if broker is None or broker.fenced or broker.epoch != command.broker_epoch:
        return Decision((), False)
    return Decision(_fence(context, broker), True)


def _fence(context: Context, broker: BrokerImage) -> tuple[Record, ...]:
    electorate = _electorate_with(context, replace(broker, fenced=True))
    fenced = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, fenced=True)
    return (fenced, *leave(electorate, context.image, broker.id))


def _unfence(context: Context, broker: BrokerImage) -> tuple[Record, ...]:
    serving = replace(broker, fenced=False, in_controlled_shutdown=False)
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        fenced=False,
        in_controlled_shutdown=False if broker.in_controlled_shutdown else None,
    )
    return (record, *come_back(_electorate_with(context, serving), context.image, broker.id))


def _shut_down(context: Context, broker: BrokerImage, *, at_once: bool) -> tuple[tuple[Record, ...], bool]:
    """Records, and whether the broker may stop now."""
    if broker.fenced:
        return (), True
    if at_once:
        return _fence(context, broker), True
    if not any(other.active for other in context.image.brokers.values() if other.id != broker.id):
        return (), True  # Nobody is there to hand over to.
    electorate = _electorate_with(context, replace(broker, in_controlled_shutdown=True))
    handed_over, waiting = hand_over(electorate, context.image, broker.id)
    records: list[Record] = list(handed_over)
    if not broker.in_controlled_shutdown:
        stopping = BrokerRegistrationChangeRecord(
            broker_id=broker.id, broker_epoch=broker.epoch, in_controlled_shutdown=True
        )
        records.insert(0, stopping)
    return tuple(records), waiting == 0


def _lose_directories(context: Context, broker: BrokerImage, left: tuple[UUID, ...]) -> tuple[Record, ...]:
    electorate = _electorate_with(context, replace(broker, log_dirs=left))
    lost = [directory for directory in broker.log_dirs if directory not in left]
    record = BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, log_dirs=left)
    return (record, *lose_directories(electorate, context.image, broker.id, lost))


def _electorate_with(context: Context, broker: BrokerImage) -> Electorate:
    return Electorate(context, {**context.image.brokers, broker.id: broker})
