"""Builds one node from its parts; the only file, with `broker_parts`, that sees all of them.

Order of a start: directories are taken, the metadata that is here is brought back, the listeners bind. A node that is
not alone hears its peers from then on, while its clients wait at the gate: it cannot know the cluster's metadata before
the quorum has a leader. Once a broker is registered and its metadata is as new as that, partitions are found and, after
an unclean stop, repaired; it is unfenced, and clients are served. A broker that is alone does the same with nobody to
wait for, and registers last. A controller that is no broker hosts nothing and is ready when it listens.

Order of a stop: what the broker leads is handed over while it serves, the quorum's leader resigns, no new connections,
owed answers leave, chores end, logs are closed and synced, the directories are marked clean.

What an editor must keep true: metadata that changes while partitions are looked for and repaired waits until that is
done (`_held`), and is then taken in its order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import structlog

from ottla.api.context import Services
from ottla.api.table import APIS
from ottla.broker_parts import (
    build_coordinators,
    build_peers,
    build_replication,
    cannot_listen,
    check_supported,
    local_config,
    registration_of,
)
from ottla.core.controller.commands import RegisterBroker
from ottla.core.controller.context import with_dynamic_configs
from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.listeners import Endpoint
from ottla.model.configs.quorum import Address
from ottla.model.configs.resolve import BrokerConfig, resolve_topic
from ottla.model.errors import OttlaError, StorageError
from ottla.runtime.appending import Appender, RecordWork
from ottla.runtime.broker_lifecycle import BrokerLifecycle
from ottla.runtime.broker_watch import BrokerWatch
from ottla.runtime.compacting import Compactor
from ottla.runtime.compaction_round import CompactionWork
from ottla.runtime.controller import ControllerDriver
from ottla.runtime.controller_channel import ControllerChannel
from ottla.runtime.fetch_sessions import FetchSessions
from ottla.runtime.fetching import Fetches
from ottla.runtime.flushing import Flushes
from ottla.runtime.internal_topics import InternalTopics
from ottla.runtime.leader_balance import LeaderBalance
from ottla.runtime.log_directories import LogDirectories
from ottla.runtime.maintenance import Maintenance
from ottla.runtime.metrics import Metrics
from ottla.runtime.neighbours import Neighbours
from ottla.runtime.partitions import PartitionTable
from ottla.runtime.producer_ids import ProducerIds
from ottla.runtime.quorum_node import QuorumNode
from ottla.runtime.record_worker import RecordWorker
from ottla.runtime.telemetry import Telemetry
from ottla.runtime.world import SystemClock, Threads, World
from ottla.server.connection import Dispatch
from ottla.server.dispatch import Dispatcher
from ottla.server.gate import Gate
from ottla.server.listener import BoundListener, Listener
from ottla.server.share import ConnectionLimits, LoopShare

if TYPE_CHECKING:
    from ottla.server.http import MetricsServer

log = structlog.get_logger("ottla.broker")

STOP_GRACE_SECONDS: Final = 5.0


class RecordJobs(RecordWork, CompactionWork, Protocol):
    """The record worker, as a broker needs it."""

    async def warm(self) -> None: ...

    async def close(self) -> None: ...


ListenerFactory: TypeAlias = Callable[[Endpoint, Dispatch, LoopShare], BoundListener]


class Broker:
    """One broker: `start`, serve, `stop`. Belongs to the loop that starts it.

    A simulator hands in listeners without sockets (`listen`) and a record worker without a process (`worker`).
    """

    def __init__(
        self,
        config: BrokerConfig,
        world: World,
        *,
        metrics_at: Address | None = None,
        listen: ListenerFactory | None = None,
        worker: RecordJobs | None = None,
    ) -> None:
        self.config = config
        self.failed = asyncio.Event()
        """Set when the broker cannot go on; the log says why."""
        self._world = world
        self._listen_at = listen or self._listen_on_sockets
        self._worker = RecordWorker() if worker is None else worker
        self._metrics_at = metrics_at
        self._metrics_server: MetricsServer | None = None
        self._listeners: list[BoundListener] = []
        self._is_alone = not config.controller_quorum_voters and not config.controller_quorum_bootstrap_servers
        self._is_hosting = False
        self._held: list[tuple[MetadataImage, ImageDelta]] | None = None
        self._lifecycle: BrokerLifecycle | None = None
        self._quorum: QuorumNode | None = None
        self._is_ready = False
        # Closed last to first: coordinators let go, then clients, then what they were served from.
        self._closing = contextlib.AsyncExitStack()
        self._underneath, self._serving, self._coordinating = (contextlib.AsyncExitStack() for _ in range(3))
        for stack in (self._underneath, self._serving, self._coordinating):
            self._closing.push_async_callback(stack.aclose)

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        data: str | None = None,
        host: str | None = None,
        port: int | None = None,
        metrics_at: Address | None = None,
    ) -> Broker:
        """From Kafka's keys, with the directory and the address over them. ConfigError names a key that is wrong."""
        config = local_config(properties, data, host, port)
        world = World(clock=SystemClock(), offload=Threads(), disk=RealDisk(), rng=random.Random(os.urandom(16)))
        return cls(config, world, metrics_at=metrics_at)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients of the first listener connect."""
        first = (*self.config.advertised_listeners, *self.config.listeners)[0]
        return str(Address(first.host, first.port))

    @property
    def metrics_address(self) -> str | None:
        """Where the metrics page and the probes are, if they are served."""
        return None if self._metrics_server is None else f"http://{self._metrics_at}"

    async def start(self) -> None:
        """Return when clients are served. After a failure everything is let go again."""
        try:
            await self._start()
        except BaseException:
            await self._close()
            raise

    async def _start(self) -> None:
        check_supported(self.config)
        world = self._world
        files = OpenFiles(world.disk)
        directories = LogDirectories(world, files, self.config.producer_id_expiration_ms)
        await world.offload.run(directories.open, self.config)
        self._underneath.callback(directories.close)
        quorum = await self._start_quorum(files, directories)
        self._is_alone = self._is_alone and quorum.is_alone
        services = self._build_services(directories, quorum)
        if "controller" in self.config.process_roles:
            self._control(services)
        await self._serve_metrics(services)
        await self._listen(services)
        if not self._is_alone:
            self._accept()
        if "broker" in self.config.process_roles:
            await self._take_part(services)
        if self._is_alone:
            self._accept()
        self._gate.open()
        self._is_ready = services.is_ready = True

    def _control(self, services: Services) -> None:
        """What a node does while it is the active controller, besides deciding."""
        balance = LeaderBalance(services.controller, self._current_config)
        balance.start()
        self._underneath.push_async_callback(balance.stop)
        watch = BrokerWatch(
            services.controller, services.quorum, self._world.network, lambda: self.config.inter_broker_listener_name
        )
        self._underneath.push_async_callback(watch.close)

    async def _take_part(self, services: Services) -> None:
        """Be a broker of the cluster: known to it, with all of its partitions, and unfenced."""
        lifecycle = self._lifecycle = self._build_lifecycle(services)
        self._underneath.push_async_callback(lifecycle.close)
        if not self._is_alone:
            await lifecycle.register()
            await lifecycle.caught_up()
        await self._host(services)
        services.maintenance.start()
        self._underneath.push_async_callback(services.maintenance.stop)
        self._replicate()
        self._coordinate(services)
        if self._is_alone:
            await lifecycle.register(heartbeats=False)
            if self._has_company(services.image):
                lifecycle.begin_heartbeats()
        else:
            await lifecycle.unfence()

    async def _host(self, services: Services) -> None:
        """Find this broker's partitions and repair what an unclean stop has left."""
        world, directories, table = self._world, services.log_directories, services.partitions
        image = services.image
        self._is_hosting, self._held = True, []
        await world.offload.run(directories.find_partitions, image)
        table.brokers_changed(image.brokers)
        for topic in image.topics.values():
            table.host(topic, resolve_topic(image.topic_configs(topic.name), self.config))
        started_ms = world.clock.now_ms()
        recovered = await directories.recover(table, self.config.num_recovery_threads_per_data_dir)
        if recovered:
            log.info("recovered after an unclean stop", logs=recovered, ms=world.clock.now_ms() - started_ms)
        self._underneath.push_async_callback(directories.close_logs, table)
        held, self._held = self._held, None
        for change in held:
            self._metadata_changed(*change)
        if any(topic.is_rewritten and not topic.is_internal for topic in table.topics):
            services.maintenance.spawn(_warm(self._worker))
        Compactor(world, table, directories, services.maintenance, self._worker, lambda: self.config).start()

    async def _start_quorum(self, files: OpenFiles, directories: LogDirectories) -> QuorumNode:
        metadata_directory = next(d for d in directories.online if d.path == self.config.metadata_log_dir)
        quorum = QuorumNode(
            self._world,
            files,
            self.config,
            cluster_id=directories.cluster_id,
            directory_id=metadata_directory.directory_id,
            on_failure=self._metadata_failed,
        )
        self._underneath.push_async_callback(quorum.close)
        await quorum.start()
        self._quorum = quorum
        return quorum

    def _build_services(self, directories: LogDirectories, quorum: QuorumNode) -> Services:
        world, config = self._world, self._current_config
        neighbours = Neighbours(
            world.clock.monotonic,
            lag_ms_max=self.config.replica_lag_time_max_ms,
            stored_high_watermark=directories.checkpoints.stored_high_watermark,
        )
        table = PartitionTable(self.config.node_id, directories.open_log, self._directory_failed, neighbours)
        self._directories = directories
        directories.on_failure(table.directory_failed)
        flushes = Flushes(world, table.directory_failed)
        neighbours.on_flush_due = flushes.begin
        self._underneath.push_async_callback(self._worker.close)
        controller = ControllerDriver(quorum, self.config, world.new_uuid)
        self._underneath.callback(controller.close)
        peers = self._peers = build_peers(world, quorum, config)
        self._underneath.callback(peers.close)
        channel = ControllerChannel(controller, quorum, peers, world.rng, config)
        coordinators = build_coordinators(
            world, table, flushes, directories, peers, config=config, services=lambda: self._services
        )
        self._marker_sending = coordinators.sending
        self._services = services = Services(
            world=world,
            node_id=self.config.node_id,
            cluster_id=directories.cluster_id,
            config=self.config,
            image=quorum.image,
            partitions=table,
            appender=Appender(world.clock, self._worker, flushes),
            fetches=Fetches(table, asyncio.get_running_loop(), directories.files.answer_slices_max),
            maintenance=Maintenance(world, table, directories, flushes, config),
            controller=controller,
            quorum=quorum,
            sessions=FetchSessions(self.config.max_incremental_fetch_session_cache_slots, world.rng),
            producer_ids=ProducerIds(channel, broker_id=self.config.node_id, broker_epoch=-1),
            log_directories=directories,
            metrics=Metrics(),
            telemetry=Telemetry(world.clock, world.new_uuid),
            internal_topics=InternalTopics(channel, config, lambda: self._services.image),
            groups=coordinators.groups,
            markers=coordinators.markers,
            transactions=coordinators.transactions,
            channel=channel,
            absences=None if self._is_alone else peers.absences,
        )
        self._replication = build_replication(services, flushes, peers, config)
        self._take_broker_config(quorum.image)
        quorum.subscribe(self._metadata_changed)
        return services

    def _current_config(self) -> BrokerConfig:
        return self.config

    def _build_lifecycle(self, services: Services) -> BrokerLifecycle:
        directories, incarnation_id = services.log_directories, self._world.new_uuid()
        channel = services.channel or services.controller

        def registration(epoch: int) -> RegisterBroker:
            return registration_of(self.config, directories, incarnation_id, epoch, fenced=not self._is_alone)

        def registered(epoch: int) -> None:
            directories.broker_epoch = epoch
            services.producer_ids = ProducerIds(channel, broker_id=services.node_id, broker_epoch=epoch)

        return BrokerLifecycle(
            channel,
            registration,
            config=self._current_config,
            image=lambda: services.quorum.image,
            on_registered=registered,
            on_failure=self._lifecycle_failed,
            offline_directories=directories.offline_ids,
        )

    def _replicate(self) -> None:
        """Follow the leaders of what is led elsewhere, and ask for other in-sync replicas of what is led here."""
        fetchers, isr_changes, assignments = self._replication
        assignments.start(partition.topic_partition for partition in self._services.partitions)
        self._underneath.push_async_callback(assignments.stop)
        isr_changes.start()
        self._underneath.push_async_callback(isr_changes.stop)
        fetchers.start()
        self._underneath.push_async_callback(fetchers.close)

    def _coordinate(self, services: Services) -> None:
        """Begin to load coordinators. They let go first at a stop, so that those who wait for others hear of it."""
        self._coordinating.push_async_callback(self._marker_sending.close)
        self._coordinating.push_async_callback(services.transactions.close)
        self._coordinating.push_async_callback(services.groups.close)
        services.groups.follow(services.image, services.node_id)
        services.transactions.coordinators.follow(services.image, services.node_id)

    async def _listen(self, services: Services) -> None:
        """Bind every listener; nothing is accepted yet."""
        dispatcher = Dispatcher(APIS, services)
        self._gate = Gate(dispatcher.dispatch)
        self._share = share = LoopShare(services, ConnectionLimits.of(self.config))
        self._serving.push_async_callback(share.close)
        self._serving.push_async_callback(dispatcher.close)
        services.is_ready = self._is_alone
        # Alone it accepts nobody before it is ready, and needs no gate.
        dispatch = dispatcher.dispatch if self._is_alone else self._gate.dispatch
        for endpoint in self.config.listeners:
            listener = self._listen_at(endpoint, dispatch, share)
            try:
                await listener.bind()
            except OSError as error:
                raise cannot_listen(str(endpoint), error) from error
            self._listeners.append(listener)
            self._serving.push_async_callback(listener.close, STOP_GRACE_SECONDS)
        self._take_ports()

    def _accept(self) -> None:
        for listener in self._listeners:
            listener.accept()

    def _listen_on_sockets(self, endpoint: Endpoint, dispatch: Dispatch, share: LoopShare) -> Listener:
        return Listener.of(endpoint, self.config, dispatch, share)

    def _take_ports(self) -> None:
        """Write the ports that the system chose for port 0 into the config."""
        ports = {listener.name: listener.port for listener in self._listeners}

        def with_ports(endpoints: tuple[Endpoint, ...]) -> str:
            return ",".join(str(item._replace(port=item.port or ports.get(item.listener, 0))) for item in endpoints)

        if any(endpoint.port == 0 for endpoint in (*self.config.listeners, *self.config.advertised_listeners)):
            changed = {"listeners": with_ports(self.config.listeners)}
            if self.config.get("advertised.listeners") is not None:
                changed["advertised.listeners"] = with_ports(self.config.advertised_listeners)
            self.config = self._services.config = self.config.with_static(changed)
            if self._quorum is not None:
                self._quorum.listens_at(self.config)

    async def _serve_metrics(self, services: Services) -> None:
        if self._metrics_at is None:
            return
        host, port = self._metrics_at
        from ottla.server.http import MetricsServer

        self._metrics_server = MetricsServer(services, host, port, lambda: self._is_ready, listeners=self._listeners)
        try:
            self._metrics_at = Address(host, await self._metrics_server.start())
        except OSError as error:
            raise cannot_listen(f"metrics port {port} of {host}", error) from error
        self._underneath.push_async_callback(self._metrics_server.stop)

    async def stop(self, *, hand_over: bool = True) -> None:
        """Stop cleanly: the next start finds everything where it belongs and scans nothing.

        Without `hand_over` nobody is asked to lead instead, for when all others stop as well.
        """
        self._is_ready = False
        try:
            if self._lifecycle is not None and hand_over:
                await self._lifecycle.shut_down()
            if self._quorum is not None and hand_over:
                await self._quorum.resign()
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            await self._closing.aclose()
        finally:
            self._world.offload.close()

    # -- what changes while it runs

    def _metadata_changed(self, image: MetadataImage, delta: ImageDelta) -> None:
        """Called on the loop after each commit, before anybody is told of it."""
        self._services.image = image
        if self._lifecycle is not None:
            self._lifecycle.metadata_changed()
            if self._is_alone and self._has_company(image):
                self._lifecycle.begin_heartbeats()
        if self._held is not None:
            self._held.append((image, delta))
            return
        if any(resource is ResourceType.BROKER for resource, _ in delta.configs_changed):
            self._take_broker_config(image)
        if self._is_hosting:
            self._follow(image, delta)

    def _has_company(self, image: MetadataImage) -> bool:
        """Whether others have joined a node that was started as the only one."""
        return len(image.brokers) > 1 or (self._quorum is not None and not self._quorum.is_alone)

    def _follow(self, image: MetadataImage, delta: ImageDelta) -> None:
        """What is hosted here changes as the metadata says."""
        services, delete_delay_ms = self._services, self.config.topic_defaults.file_delete_delay_ms
        if delta.brokers_changed:
            self._peers.brokers_changed(image)
        services.partitions.follow(
            image,
            delta,
            lambda name: resolve_topic(image.topic_configs(name), self.config),
            lambda removed: services.log_directories.delete(removed, delete_delay_ms),
        )
        services.groups.metadata_changed(image, delta, services.node_id)
        services.transactions.coordinators.metadata_changed(image, delta, services.node_id)

    def _take_broker_config(self, image: MetadataImage) -> None:
        """Dynamic broker configs take effect: on the broker, and through defaults on every topic."""
        self.config = self._services.config = with_dynamic_configs(self.config, image)
        self._services.sessions.slots_max = self.config.max_incremental_fetch_session_cache_slots
        self._services.partitions.neighbours.lag_ms_max = self.config.replica_lag_time_max_ms
        self._services.partitions.neighbours.leader_quota.set_rate(self.config.leader_replication_throttled_rate)
        self._replication.fetchers.config_changed()
        if self._listeners:
            self._share.limits = ConnectionLimits.of(self.config)
        for topic in self._services.partitions.topics:
            topic.set_config(resolve_topic(image.topic_configs(topic.name), self.config))

    def _directory_failed(self, error: StorageError) -> bool:
        newly_failed = self._directories.fail(error)
        if not any(directory.online for directory in self._directories.online):
            log.critical("no log directory is left, the broker stops")
            self.failed.set()
        elif newly_failed and self._lifecycle is not None:
            self._lifecycle.directory_failed()
        return newly_failed

    def _metadata_failed(self, error: Exception) -> None:
        log.critical("the metadata log failed, the broker stops", reason=str(error))
        self.failed.set()

    def _lifecycle_failed(self, error: Exception) -> None:
        log.critical("the cluster does not take this broker, it stops", reason=str(error))
        self.failed.set()


async def _warm(worker: RecordJobs) -> None:
    """Have the record worker ready before the first batch needs it; without it that batch waits a little longer."""
    with contextlib.suppress(OttlaError):
        await worker.warm()
