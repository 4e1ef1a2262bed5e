"""Builds one broker from its parts; the only file that sees all of them.

Order of a start: directories are taken, the metadata is brought back, partitions are found and, after an unclean
stop, repaired, the listeners bind, the broker registers itself, and only then connections are served. Order of a
stop: no new connections, owed answers leave, chores end, logs are closed and synced, the directories are marked
clean.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from ottla.api.context import Services
from ottla.api.table import APIS
from ottla.core.controller.brokers import SUPPORTED_FEATURES
from ottla.core.controller.commands import RegisterBroker
from ottla.core.controller.context import with_dynamic_configs
from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.core.controller.records import BrokerEndpoint, SupportedFeature
from ottla.core.groups.records import GroupRecord
from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.listeners import Endpoint
from ottla.model.configs.resolve import BrokerConfig, resolve_topic
from ottla.model.errors import ConfigError, OttlaError, StorageError
from ottla.model.ids import TopicPartition
from ottla.runtime.appending import Appender
from ottla.runtime.compacting import Compactor
from ottla.runtime.controller import ControllerDriver
from ottla.runtime.coordinator_kinds import group_kind, transaction_kind
from ottla.runtime.coordinators import Coordinators
from ottla.runtime.fetch_sessions import FetchSessions
from ottla.runtime.fetching import Fetches
from ottla.runtime.flushing import Flushes
from ottla.runtime.internal_topics import InternalTopics
from ottla.runtime.log_directories import LogDirectories
from ottla.runtime.maintenance import Maintenance
from ottla.runtime.marker_writing import MarkerWriter
from ottla.runtime.metrics import Metrics
from ottla.runtime.partitions import PartitionTable
from ottla.runtime.producer_ids import ProducerIds
from ottla.runtime.quorum import SingleVoter
from ottla.runtime.record_worker import RecordWorker
from ottla.runtime.telemetry import Telemetry
from ottla.runtime.transaction_coordinators import TransactionCoordinators
from ottla.runtime.world import SystemClock, Threads, World
from ottla.server.dispatch import Dispatcher
from ottla.server.listener import Listener
from ottla.server.share import ConnectionLimits, LoopShare

if TYPE_CHECKING:
    from ottla.server.http import MetricsServer

log = structlog.get_logger("ottla.broker")

SECURITY_PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
STOP_GRACE_SECONDS: Final = 5.0
OPEN_FILES_FOR_LOGS_MAX: Final = 4096
EXIT_OK, EXIT_FAILURE, EXIT_USAGE = 0, 1, 2
COLLECTOR_THRESHOLDS: Final = (50_000, 20, 100)
"""Requests make no cycles, so collections may be rare; each of them would hold up the loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """What `ottla serve` was told."""

    data: str | None = None
    host: str | None = None
    port: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    metrics_port: int | None = None


class Broker:
    """One broker: `start`, serve, `stop`. Belongs to the loop that starts it."""

    def __init__(self, config: BrokerConfig, world: World, *, metrics_port: int | None = None) -> None:
        self.config = config
        self.failed = asyncio.Event()
        """Set when the broker cannot go on; the log says why."""
        self._world = world
        self._metrics_port = metrics_port
        self._metrics_server: MetricsServer | None = None
        self._listeners: list[Listener] = []
        self._closing = contextlib.AsyncExitStack()
        self._is_ready = False

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        data: str | None = None,
        host: str | None = None,
        port: int | None = None,
        metrics_port: int | None = None,
    ) -> Broker:
        """From Kafka's keys, with the directory and the address over them. ConfigError names a key that is wrong."""
        config = BrokerConfig.from_properties(_with_flags(properties, data, host, port))
        absolute = ",".join(os.path.abspath(path) for path in config.log_dirs)
        config = config.with_static(
            {"log.dirs": absolute, "metadata.log.dir": os.path.abspath(config.metadata_log_dir)}
        )
        world = World(clock=SystemClock(), offload=Threads(), disk=RealDisk(), rng=random.Random(os.urandom(16)))
        return cls(config, world, metrics_port=metrics_port)

    @property
    def bootstrap_servers(self) -> str:
        """Where clients of the first listener connect."""
        first = self.config.advertised_listeners[0]
        return f"{first.host}:{first.port}"

    @property
    def metrics_address(self) -> str | None:
        return None if self._metrics_server is None else f"http://127.0.0.1:{self._metrics_port}"

    async def start(self) -> None:
        """Return when clients are served. After a failure everything is let go again."""
        try:
            await self._start()
        except BaseException:
            await self._closing.aclose()
            self._world.offload.close()
            raise

    async def _start(self) -> None:
        _check_supported(self.config)
        world, closing = self._world, self._closing
        files = OpenFiles(world.disk)
        directories = LogDirectories(world, files, self.config.producer_id_expiration_ms)
        await world.offload.run(directories.open, self.config)
        closing.callback(directories.close)
        quorum = await self._start_quorum(files, directories)
        await world.offload.run(directories.find_partitions, quorum.image)
        services = self._build_services(directories, quorum)
        await self._serve_metrics(services)
        started_ms = world.clock.now_ms()
        recovered = await directories.recover(services.partitions, self.config.num_recovery_threads_per_data_dir)
        if recovered:
            log.info("recovered after an unclean stop", logs=recovered, ms=world.clock.now_ms() - started_ms)
        closing.push_async_callback(directories.close_logs, services.partitions)
        services.maintenance.start()
        closing.push_async_callback(services.maintenance.stop)
        await self._listen(services)
        self._coordinate(services)
        await self._register(services, clean_start=directories.was_clean)
        for listener in self._listeners:
            listener.accept()
        self._is_ready = True

    async def _start_quorum(self, files: OpenFiles, directories: LogDirectories) -> SingleVoter:
        metadata_directory = next(d for d in directories.online if d.path == self.config.metadata_log_dir)
        quorum = SingleVoter(
            self._world,
            files,
            self.config,
            cluster_id=directories.cluster_id,
            directory_id=metadata_directory.directory_id,
            on_failure=self._metadata_failed,
        )
        await quorum.start()
        self._closing.push_async_callback(quorum.close)
        return quorum

    def _build_services(self, directories: LogDirectories, quorum: SingleVoter) -> Services:
        world = self._world
        table = PartitionTable(self.config.node_id, directories.open_log, self._directory_failed)
        self._directories = directories
        directories.on_failure(table.directory_failed)
        flushes = Flushes(world, table.directory_failed)
        maintenance = Maintenance(world, table, directories, flushes, lambda: self.config)
        worker = RecordWorker()
        self._closing.push_async_callback(worker.close)
        controller = ControllerDriver(quorum, self.config, world.new_uuid)
        groups, markers, transactions = self._build_coordinators(table, flushes, directories)
        services = Services(
            world=world,
            node_id=self.config.node_id,
            cluster_id=directories.cluster_id,
            config=self.config,
            image=quorum.image,
            partitions=table,
            appender=Appender(world.clock, worker, flushes),
            fetches=Fetches(table, asyncio.get_running_loop()),
            maintenance=maintenance,
            controller=controller,
            quorum=quorum,
            sessions=FetchSessions(self.config.max_incremental_fetch_session_cache_slots, world.rng),
            producer_ids=ProducerIds(controller, broker_id=self.config.node_id, broker_epoch=-1),
            log_directories=directories,
            metrics=Metrics(),
            telemetry=Telemetry(world.clock, world.new_uuid),
            internal_topics=InternalTopics(controller, lambda: self.config, lambda: self._services.image),
            groups=groups,
            markers=markers,
            transactions=transactions,
        )
        self._services = services
        self._take_broker_config(quorum.image)
        for topic in quorum.image.topics.values():
            table.host(topic, resolve_topic(quorum.image.topic_configs(topic.name), self.config))
        if any(topic.is_rewritten and not topic.is_internal for topic in table.topics):
            maintenance.spawn(_warm(worker))
        quorum.subscribe(self._metadata_changed)
        Compactor(world, table, directories, maintenance, worker, lambda: self.config).start()
        return services

    def _build_coordinators(
        self, table: PartitionTable, flushes: Flushes, directories: LogDirectories
    ) -> tuple[Coordinators[GroupRecord], MarkerWriter, TransactionCoordinators]:
        world = self._world

        def has_files(tp: TopicPartition) -> bool:
            return directories.directory_of(tp) is not None

        groups = Coordinators(
            group_kind(lambda: self.config, lambda: self._services.image, world.new_uuid),
            world,
            table,
            flushes,
            lambda: self.config,
            has_files=has_files,
        )
        markers = MarkerWriter(table, world.clock, flushes, lambda: groups)
        transactions = TransactionCoordinators(
            transaction_kind(lambda: self.config),
            world,
            table,
            flushes,
            lambda: self.config,
            has_files=has_files,
            sender=markers,
            topic_exists=lambda name: name in self._services.image.topics,
            producer_ids=lambda: self._services.producer_ids,
        )
        return groups, markers, transactions

    def _coordinate(self, services: Services) -> None:
        """Begin to load coordinators. They let go first at a stop, so that those who wait for others hear of it."""
        self._closing.push_async_callback(services.transactions.close)
        self._closing.push_async_callback(services.groups.close)
        services.groups.follow(services.image, services.node_id)
        services.transactions.coordinators.follow(services.image, services.node_id)

    async def _listen(self, services: Services) -> None:
        """Bind every listener; nothing is accepted yet."""
        dispatcher = Dispatcher(APIS, services)
        self._share = share = LoopShare(services, ConnectionLimits.of(self.config))
        self._closing.push_async_callback(share.close)
        self._closing.push_async_callback(dispatcher.close)
        controllers = set(self.config.controller_listener_names)
        for endpoint in self.config.listeners:
            if endpoint.listener in controllers:
                continue
            listener = Listener(
                endpoint.listener,
                endpoint.host,
                endpoint.port,
                dispatcher.dispatch,
                share,
                backlog=max(self.config.socket_listen_backlog_size, 1024),
            )
            try:
                await listener.bind()
            except OSError as error:
                raise StorageError(str(endpoint), f"cannot listen: {error.strerror or error}") from error
            self._listeners.append(listener)
            self._closing.push_async_callback(listener.close, STOP_GRACE_SECONDS)
        self._take_ports()

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

    async def _register(self, services: Services, *, clean_start: bool) -> None:
        config = self.config
        epoch = await services.controller.submit(
            RegisterBroker(
                broker_id=config.node_id,
                incarnation_id=self._world.new_uuid(),
                cluster_id=services.cluster_id,
                endpoints=[
                    BrokerEndpoint(item.listener, item.host, item.port, SECURITY_PROTOCOLS[item.security_protocol])
                    for item in config.advertised_listeners
                ],
                features=[SupportedFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
                rack=config.broker_rack,
                log_dirs=services.log_directories.ids(),
                clean_start=clean_start,
            )
        )
        services.producer_ids = ProducerIds(services.controller, broker_id=config.node_id, broker_epoch=epoch)

    async def _serve_metrics(self, services: Services) -> None:
        if self._metrics_port is None:
            return
        from ottla.server.http import MetricsServer

        self._metrics_server = MetricsServer(
            services, "127.0.0.1", self._metrics_port, lambda: self._is_ready, listeners=self._listeners
        )
        self._metrics_port = await self._metrics_server.start()
        self._closing.push_async_callback(self._metrics_server.stop)

    async def stop(self) -> None:
        """Stop cleanly: the next start finds everything where it belongs and scans nothing."""
        self._is_ready = False
        try:
            await self._closing.aclose()
        finally:
            self._world.offload.close()

    # -- what changes while it runs

    def _metadata_changed(self, image: MetadataImage, delta: ImageDelta) -> None:
        """Called on the loop after each commit, before anybody is told of it."""
        services, table = self._services, self._services.partitions
        services.image = image
        if any(resource is ResourceType.BROKER for resource, _ in delta.configs_changed):
            self._take_broker_config(image)
        for topic in delta.topics_deleted:
            services.log_directories.delete(table.drop(topic.id))
        for topic in delta.topics_created:
            table.host(topic, resolve_topic(image.topic_configs(topic.name), self.config))
        for topic_id in delta.partitions_changed:
            grown = image.topics_by_id[topic_id]
            table.host(grown, resolve_topic(image.topic_configs(grown.name), self.config))
        for resource, name in delta.configs_changed:
            if resource is ResourceType.TOPIC and name in image.topics:
                table.set_config(name, resolve_topic(image.topic_configs(name), self.config))
        services.groups.metadata_changed(image, delta, services.node_id)
        services.transactions.coordinators.metadata_changed(image, delta, services.node_id)

    def _take_broker_config(self, image: MetadataImage) -> None:
        """Dynamic broker configs take effect: on the broker, and through defaults on every topic."""
        self.config = self._services.config = with_dynamic_configs(self.config, image)
        self._services.sessions.slots_max = self.config.max_incremental_fetch_session_cache_slots
        if self._listeners:
            self._share.limits = ConnectionLimits.of(self.config)
        for topic in self._services.partitions.topics:
            topic.set_config(resolve_topic(image.topic_configs(topic.name), self.config))

    def _directory_failed(self, error: StorageError) -> bool:
        newly_failed = self._directories.fail(error)
        if not any(directory.online for directory in self._directories.online):
            log.critical("no log directory is left, the broker stops")
            self.failed.set()
        return newly_failed

    def _metadata_failed(self, error: Exception) -> None:
        log.critical("the metadata log failed, the broker stops", reason=str(error))
        self.failed.set()


async def _warm(worker: RecordWorker) -> None:
    """Have the record worker ready before the first batch needs it; without it that batch waits a little longer."""
    with contextlib.suppress(OttlaError):
        await worker.warm()


def _with_flags(properties: Mapping[str, str], data: str | None, host: str | None, port: int | None) -> dict[str, str]:
    """The properties with what --data, --host and --port say over them."""
    merged = dict(properties)
    if data is not None:
        merged.pop("log.dir", None)
        merged["log.dirs"] = data
    if host is not None or port is not None:
        if "listeners" in merged:
            raise ConfigError("listeners: leave it out when --host or --port is given, or leave those out")
        chosen_host = "127.0.0.1" if host is None else host
        shown = f"[{chosen_host}]" if ":" in chosen_host else chosen_host
        merged["listeners"] = f"PLAINTEXT://{shown}:{9092 if port is None else port}"
    return merged


def _check_supported(config: BrokerConfig) -> None:
    """What the config may say and this version cannot do is an error at start, not a surprise later."""
    if set(config.process_roles) != {"broker", "controller"}:
        raise ConfigError("process.roles: this version runs broker,controller in one process")
    for endpoint in config.listeners:
        if endpoint.security_protocol != "PLAINTEXT":
            raise ConfigError(f"listeners: {endpoint}: this version serves PLAINTEXT only")


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop where it is installed, else what Python has."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run_broker(options: BrokerOptions) -> int:
    """Run a broker until SIGTERM or SIGINT; returns the exit code. The caller has set up the log."""
    sys.setswitchinterval(0.001)  # A thread that computes gives way to the loop within this time.
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(_serve_until_told(options))
    except ConfigError as error:
        print(f"ottla: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OttlaError as error:
        print(f"ottla: {error}", file=sys.stderr)
        return EXIT_FAILURE


async def _serve_until_told(options: BrokerOptions) -> int:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    broker = Broker.from_properties(
        options.properties,
        data=options.data,
        host=options.host,
        port=options.port,
        metrics_port=options.metrics_port,
    )
    await broker.start()
    try:
        print(f"ottla is ready on {broker.bootstrap_servers}", flush=True)
        _quieten_collector()
        waits = [asyncio.ensure_future(event.wait()) for event in (told, broker.failed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    finally:
        await broker.stop()
    return EXIT_FAILURE if broker.failed.is_set() else EXIT_OK


def _quieten_collector() -> None:
    """What lives now lives on: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
