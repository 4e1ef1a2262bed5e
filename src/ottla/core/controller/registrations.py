"""A broker starts: the decision on its registration.

A registration begins a life of the broker, known by its epoch, the offset of the record. A broker that asks again with
the incarnation it already has gets the epoch it already has. Another incarnation takes the place of the one before
when that is fenced, or cannot live any more: it has the same directory, which only one process can hold, or the same
addresses. Otherwise two processes have the same id, and the one that came first stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from ottla.core.controller.commands import Decision, RegisterBroker
from ottla.core.controller.context import Context
from ottla.core.controller.departures import come_back, leave, start_over
from ottla.core.controller.elections import Electorate
from ottla.core.controller.features import check_registration
from ottla.core.controller.image import BrokerImage
from ottla.core.controller.records import PartitionChangeRecord, RegisterBrokerRecord
from ottla.model.errors import ApiError, ErrorCode

_RESERVED_DIRECTORIES_MAX: Final = 2
"""Ids up to this one say that a replica's directory is not chosen, lost, or about to change."""


def register_broker(context: Context, command: RegisterBroker) -> Decision[int]:
    """The broker's epoch; a later registration always has a higher one."""
    if command.cluster_id != context.image.cluster_id:
        raise ApiError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {context.image.cluster_id}, but got cluster ID {command.cluster_id}",
        )
    before = context.image.brokers.get(command.broker_id)
    _check_unique(command, before)
    _check_directories(context, command)
    check_registration(context, command.features)
    if before is not None and before.incarnation_id == command.incarnation_id:
        return _amend(context, command, before)
    record = _record(command, context.next_offset, fenced=command.fenced, in_controlled_shutdown=False)
    return Decision((record, *_partition_changes(context, command, before)), context.next_offset)


def _record(command: RegisterBroker, epoch: int, *, fenced: bool, in_controlled_shutdown: bool) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=command.broker_id,
        incarnation_id=command.incarnation_id,
        broker_epoch=epoch,
        end_points=tuple(command.endpoints),
        features=tuple(command.features),
        rack=command.rack,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=tuple(command.log_dirs),
    )


def _amend(context: Context, command: RegisterBroker, before: BrokerImage) -> Decision[int]:
    """The same life again: its answer was lost, or its addresses changed."""
    fenced = before.fenced and command.fenced
    record = _record(command, before.epoch, fenced=fenced, in_controlled_shutdown=before.in_controlled_shutdown)
    changes: tuple[PartitionChangeRecord, ...] = ()
    if before.fenced and not fenced:
        brokers = {**context.image.brokers, before.id: replace(before, fenced=False)}
        changes = tuple(come_back(Electorate(context, brokers), context.image, before.id))
    return Decision((record, *changes), before.epoch)


def _partition_changes(
    context: Context, command: RegisterBroker, before: BrokerImage | None
) -> Iterator[PartitionChangeRecord]:
    broker = BrokerImage(
        id=command.broker_id,
        epoch=context.next_offset,
        incarnation_id=command.incarnation_id,
        endpoints=tuple(command.endpoints),
        fenced=command.fenced,
        log_dirs=tuple(command.log_dirs),
    )
    electorate = Electorate(context, {**context.image.brokers, broker.id: broker})
    if not _was_stopped_cleanly(command, before):
        yield from start_over(electorate, context.image, broker, before=before)
    elif broker.fenced:
        yield from leave(electorate, context.image, broker.id)
    else:
        yield from come_back(electorate, context.image, broker.id)


def _was_stopped_cleanly(command: RegisterBroker, before: BrokerImage | None) -> bool:
    """Whether the last life that the controller knows is the one that ended well."""
    if before is None or not command.clean_start:
        return False
    return command.previous_broker_epoch in (-1, before.epoch)


def _check_unique(command: RegisterBroker, before: BrokerImage | None) -> None:
    if before is None or before.fenced or before.incarnation_id == command.incarnation_id:
        return
    if set(before.log_dirs) & set(command.log_dirs) or before.endpoints == tuple(command.endpoints):
        return
    raise ApiError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"Another broker is registered with broker id {command.broker_id}, and lives. Give this one another node.id.",
    )


def _check_directories(context: Context, command: RegisterBroker) -> None:
    directories = set(command.log_dirs)
    if len(directories) != len(command.log_dirs):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    if any(directory.int <= _RESERVED_DIRECTORIES_MAX for directory in directories):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    for broker in context.image.brokers.values():
        if broker.id != command.broker_id and not directories.isdisjoint(broker.log_dirs):
            raise ApiError(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {broker.id} is already registered with a directory of this broker: was it copied?",
            )
