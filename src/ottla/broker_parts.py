"""Parts of a broker that are put together out of several others; `broker.py` has the rest."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.core.controller.commands import RegisterBroker
from ottla.core.controller.feature_levels import TRANSACTION_VERSION
from ottla.core.controller.features import REGISTERED_FEATURES
from ottla.core.controller.records import BrokerEndpoint
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ConfigError, StorageError
from ottla.runtime.coordinator_kinds import group_kind, transaction_kind
from ottla.runtime.coordinators import Coordinators
from ottla.runtime.directory_assignments import DirectoryAssignments
from ottla.runtime.followed_partition import FollowerContext
from ottla.runtime.isr_changes import IsrChanges
from ottla.runtime.marker_sending import MarkerSending
from ottla.runtime.marker_writing import MarkerWriter
from ottla.runtime.peers import Peers
from ottla.runtime.remote_transactions import RemoteTransactions
from ottla.runtime.replica_fetchers import ReplicaFetchers
from ottla.runtime.transaction_coordinators import TransactionCoordinators

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.core.controller.image import MetadataImage
    from ottla.core.groups.records import GroupRecord
    from ottla.model.ids import TopicPartition
    from ottla.runtime.flushing import Flushes
    from ottla.runtime.log_directories import LogDirectories
    from ottla.runtime.partitions import PartitionTable
    from ottla.runtime.quorum import MetadataQuorum
    from ottla.runtime.world import World


SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}


class CoordinatorParts(NamedTuple):
    """Both kinds of coordinators, and what takes markers to their partitions."""

    groups: Coordinators[GroupRecord]
    markers: MarkerWriter
    sending: MarkerSending
    transactions: TransactionCoordinators


def build_coordinators(
    world: World,
    table: PartitionTable,
    flushes: Flushes,
    directories: LogDirectories,
    peers: Peers,
    *,
    config: Callable[[], BrokerConfig],
    services: Callable[[], Services],
) -> CoordinatorParts:
    """`services` is asked when something happens, not before: these parts are in it."""

    def has_files(tp: TopicPartition) -> bool:
        return directories.directory_of(tp) is not None

    def image() -> MetadataImage:
        return services().image

    groups = Coordinators(
        group_kind(config, image, world.new_uuid),
        world,
        table,
        flushes,
        config,
        has_files=has_files,
    )
    markers = MarkerWriter(table, world.clock, flushes, lambda: groups)
    sending = MarkerSending(markers, peers, image, node_id=config().node_id)
    transactions = TransactionCoordinators(
        transaction_kind(config, lambda: image().feature_level(TRANSACTION_VERSION)),
        world,
        table,
        flushes,
        config,
        has_files=has_files,
        sender=sending,
        partition_exists=lambda tp: image().has_partition(tp),
        producer_ids=lambda: services().producer_ids,
        remote=RemoteTransactions(peers, image, node_id=config().node_id),
    )
    return CoordinatorParts(groups, markers, sending, transactions)


class ReplicationParts(NamedTuple):
    """What followers do, and what leaders ask of the controller."""

    fetchers: ReplicaFetchers
    isr_changes: IsrChanges
    directory_assignments: DirectoryAssignments


def build_replication(
    services: Services, flushes: Flushes, peers: Peers, config: Callable[[], BrokerConfig]
) -> ReplicationParts:
    directories = services.log_directories

    def broker_epoch() -> int:
        return directories.broker_epoch

    context = FollowerContext(
        world=services.world,
        node_id=services.node_id,
        table=services.partitions,
        directories=directories,
        flushes=flushes,
        config=config,
        image=lambda: services.image,
        broker_epoch=broker_epoch,
        discard=services.maintenance.discard,
    )
    channel = services.channel or services.controller
    isr_changes = IsrChanges(services.partitions, channel, node_id=services.node_id, broker_epoch=broker_epoch)
    assignments = DirectoryAssignments(
        directories, channel, node_id=services.node_id, broker_epoch=broker_epoch, image=lambda: services.image
    )
    return ReplicationParts(ReplicaFetchers(peers, context), isr_changes, assignments)


def build_peers(world: World, quorum: MetadataQuorum, config: Callable[[], BrokerConfig]) -> Peers:
    """The way to other nodes: brokers by the metadata, the controller by the quorum."""

    def voters() -> list[tuple[str, int]]:
        told = config()
        # Not left out by its id: where another process has this node's id and leads, it alone can say so.
        own = [(listener.host, listener.port) for listener in (*told.advertised_listeners, *told.listeners)]
        named = [(voter.host, voter.port) for voter in told.controller_quorum_voters]
        named += [(server.host, server.port) for server in told.controller_quorum_bootstrap_servers]
        return [address for address in named if address not in own]

    return Peers(
        world.network,
        client_id=f"node-{config().node_id}",
        image=lambda: quorum.image,
        listener_name=lambda: config().inter_broker_listener_name,
        leader=quorum.address_of_leader,
        voters=voters,
    )


def registration_of(
    config: BrokerConfig, directories: LogDirectories, incarnation_id: UUID, epoch: int, *, fenced: bool
) -> RegisterBroker:
    """How a broker registers; `epoch` is that of its registration in this very life, -1 if it has none yet."""
    is_new = epoch < 0
    return RegisterBroker(
        broker_id=config.node_id,
        incarnation_id=incarnation_id,
        cluster_id=directories.cluster_id,
        endpoints=[
            BrokerEndpoint(item.listener, item.host, item.port, SECURITY_PROTOCOLS[item.security_protocol])
            for item in config.advertised_listeners
        ],
        features=REGISTERED_FEATURES,
        rack=config.broker_rack,
        log_dirs=directories.ids(),
        fenced=fenced,
        clean_start=directories.was_clean if is_new else True,
        previous_broker_epoch=directories.previous_broker_epoch if is_new else epoch,
    )


def local_config(
    properties: Mapping[str, str],
    data: str | None,
    host: str | None,
    port: int | None,
    own_name: Callable[[], str] = socket.getfqdn,
) -> BrokerConfig:
    """The config of a broker that runs here: with the flags, whole paths, and an address that clients can be told."""
    config = BrokerConfig.from_properties(with_flags(properties, data, host, port))
    here = {
        "log.dirs": ",".join(os.path.abspath(path) for path in config.log_dirs),
        "metadata.log.dir": os.path.abspath(config.metadata_log_dir),
    }
    # Who listens on every address has none to tell. Apache Kafka tells the machine's name then.
    if not all(endpoint.host for endpoint in config.advertised_listeners):
        name = own_name()
        told = (endpoint._replace(host=endpoint.host or name) for endpoint in config.advertised_listeners)
        here["advertised.listeners"] = ",".join(map(str, told))
    return config.with_static(here)


def with_flags(properties: Mapping[str, str], data: str | None, host: str | None, port: int | None) -> dict[str, str]:
    """The properties with what --data, --host and --port say over them."""
    merged = dict(properties)
    if data is not None:
        merged.pop("log.dir", None)
        merged["log.dirs"] = data
    if host is not None or port is not None:
        if "listeners" in merged:
            raise ConfigError("listeners: leave it out when a host or a port is given beside it, or leave those out")
        chosen_host = "127.0.0.1" if host is None else host.removeprefix("[").removesuffix("]")
        shown = f"[{chosen_host}]" if ":" in chosen_host else chosen_host
        merged["listeners"] = f"PLAINTEXT://{shown}:{9092 if port is None else port}"
    return merged


def check_supported(config: BrokerConfig) -> None:
    """What the config may say and this version cannot do is an error at start, not a surprise later."""
    for endpoint in config.listeners:
        if endpoint.security_protocol != "PLAINTEXT":
            raise ConfigError(f"listeners: {endpoint}: this version serves PLAINTEXT only")


def cannot_listen(where: str, error: OSError) -> StorageError:
    """Why nobody can be heard there, and what to do about it."""
    # A name that leads nowhere has a negative number, and a text of its own.
    reason = os.strerror(error.errno) if error.errno is not None and error.errno > 0 else error.strerror or error
    taken = "; `ottla doctor` says by whom, if you name the port with --bootstrap"
    return StorageError(where, f"cannot listen: {reason}{taken if error.errno == errno.EADDRINUSE else ''}")
