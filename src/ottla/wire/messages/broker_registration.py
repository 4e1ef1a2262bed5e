"""BrokerRegistration: a broker starts and tells the controller who it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, String, Uint16, Uuid, ignorable, since


class Listener(Message):
    """An address of the broker."""

    name: String
    host: String
    port: Uint16
    security_protocol: Int16


class Feature(Message):
    """The levels of a feature that the broker can work with."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


class BrokerRegistrationRequest(Message, api_key=62, versions=(0, 4), flexible_since=0):
    """The broker, and the life it begins."""

    broker_id: Int32
    cluster_id: String
    incarnation_id: Uuid
    listeners: Sequence[Listener]
    features: Sequence[Feature]
    rack: String | None
    is_migrating_zk_broker: Annotated[Bool, since(1)] = False
    log_dirs: Annotated[Sequence[Uuid], since(2), ignorable] = []
    previous_broker_epoch: Annotated[Int64, since(3), ignorable] = -1


class BrokerRegistrationResponse(Message, api_key=62, versions=(0, 4), flexible_since=0):
    """The epoch by which the controller knows this life."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
