"""What a handler may see: the broker's services and the request it answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.core.groups.records import GroupRecord
    from ottla.model.configs.resolve import BrokerConfig
    from ottla.runtime.absences import Absences
    from ottla.runtime.appending import Appender
    from ottla.runtime.controller import ControllerDriver
    from ottla.runtime.controller_channel import ControllerChannel
    from ottla.runtime.coordinators import Coordinators
    from ottla.runtime.fetch_sessions import FetchSessions
    from ottla.runtime.fetching import Fetches
    from ottla.runtime.internal_topics import InternalTopics
    from ottla.runtime.log_directories import LogDirectories
    from ottla.runtime.maintenance import Maintenance
    from ottla.runtime.marker_writing import MarkerWriter
    from ottla.runtime.metrics import Metrics
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.producer_ids import ProducerIds
    from ottla.runtime.quorum import QuorumMember
    from ottla.runtime.remembered_fetches import RememberedFetch
    from ottla.runtime.repeated_fetches import RepeatedFetch
    from ottla.runtime.telemetry import Telemetry
    from ottla.runtime.transaction_coordinators import TransactionCoordinators
    from ottla.runtime.world import World


class Caller(Protocol):
    """Who asks: from where, through which listener, and as whom."""

    @property
    def host(self) -> str: ...

    @property
    def listener(self) -> str: ...

    @property
    def principal(self) -> str: ...


class Rememberer(Protocol):
    """A connection, as far as it keeps something from one request to the next."""

    remembered_fetch: RememberedFetch | None
    repeated_fetch: RepeatedFetch | None


class EnvelopeDispatch(Protocol):
    """Serves a request that another node has handed on."""

    async def __call__(self, frame: bytes, *, principal: str, host: str, listener: str) -> bytes:
        """The finished answer; ApiError if there is none."""


@dataclass(slots=True, kw_only=True)
class Services:
    """The parts of a broker that handlers ask. Built once by `broker.py`."""

    world: World
    node_id: int
    cluster_id: str
    config: BrokerConfig
    """Static and dynamic broker config; replaced as a whole when a dynamic config changes."""
    image: MetadataImage
    """The committed metadata; replaced as a whole when a record is committed."""
    partitions: PartitionTable
    appender: Appender
    fetches: Fetches
    maintenance: Maintenance
    controller: ControllerDriver
    quorum: QuorumMember
    sessions: FetchSessions
    producer_ids: ProducerIds
    log_directories: LogDirectories
    metrics: Metrics
    telemetry: Telemetry
    internal_topics: InternalTopics
    groups: Coordinators[GroupRecord]
    transactions: TransactionCoordinators
    markers: MarkerWriter
    channel: ControllerChannel | None = None
    """The way to the active controller, wherever that is; None where it can only be here."""
    absences: Absences | None = None
    """Brokers that seem to be gone, or just went; None where there is only this one."""
    dispatch_enveloped: EnvelopeDispatch | None = None
    """Set by the dispatcher."""
    lookup: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a lookup by time while it has a thread: it computes there for as long as producers made it take, so it
    shares the interpreter with everybody else, and must leave the other threads to syncs."""
    is_ready: bool = True
    """Whether no request waits until the broker has started: what is written ahead would overtake it."""


class RequestContext(msgspec.Struct, gc=False):
    """One request, as its handler sees it. Made for every request, so it is what is made fastest."""

    services: Services
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    peer_host: str
    listener: str
    principal: str = "User:ANONYMOUS"
    connection: Rememberer | None = None
    """None where a request does not come by a connection of its own."""
