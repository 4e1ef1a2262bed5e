"""One broker as a process: signals, exit codes, and what a process that is a broker sets for itself."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from ottla.broker import Broker
from ottla.model import open_files
from ottla.model.configs.quorum import Address
from ottla.model.configs.resolve import MIN_INSYNC, BrokerConfig
from ottla.model.configs.unserved import without_effect
from ottla.model.errors import ConfigError, OttlaError

log: Final = structlog.get_logger("ottla.broker")

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
    metrics_at: Address | None = None
    stops_with_input: bool = False
    """Stop when standard input ends, and hand nothing over: whoever watches over all brokers stops them, or is gone."""


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
    open_files.take_all()
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
    loop, told, alone = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    if options.stops_with_input:
        loop.add_reader(sys.stdin.fileno(), _take_input, loop, told, alone)
    broker = Broker.from_properties(
        options.properties,
        data=options.data,
        host=options.host,
        port=options.port,
        metrics_at=options.metrics_at,
    )
    if idle := without_effect(broker.config.static):
        log.warning("these keys have no effect here, see docs/configs.md", keys=", ".join(idle))
    if not await _start_unless(told, broker):
        return EXIT_OK
    try:
        _say_if_overruled(broker.config)
        if broker.metrics_address is not None:
            log.info("metrics and probes are served", address=broker.metrics_address)
        print(f"ottla is ready on {broker.bootstrap_servers}", flush=True)
        _quieten_collector()
        waits = [asyncio.ensure_future(event.wait()) for event in (told, broker.failed)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
    finally:
        await broker.stop(hand_over=not alone.is_set())
    return EXIT_FAILURE if broker.failed.is_set() else EXIT_OK


def _say_if_overruled(config: BrokerConfig) -> None:
    """The cluster's minimum was set when it was founded, and whoever changes the file of a broker wonders."""
    stated, cluster_wide = config.static.get(MIN_INSYNC), config.topic_defaults.min_insync_replicas
    if stated is not None and int(stated) != cluster_wide:
        log.warning(
            f"{MIN_INSYNC} is the same for all brokers and set in the cluster, not here: "
            f"ottla config set --all-brokers {MIN_INSYNC}={stated}",
            cluster=cluster_wide,
            here=stated,
        )


async def _start_unless(told: asyncio.Event, broker: Broker) -> bool:
    """Start the broker; False if it was told to stop meanwhile, since a start may wait long for other nodes."""
    starting, waiting = asyncio.ensure_future(broker.start()), asyncio.ensure_future(told.wait())
    await asyncio.wait([starting, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if starting.done():
        starting.result()
        return True
    starting.cancel()
    await asyncio.wait([starting])
    return False


def _take_input(loop: asyncio.AbstractEventLoop, told: asyncio.Event, alone: asyncio.Event) -> None:
    """Input means nothing to a broker; its end does."""
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        alone.set()
        told.set()


def _quieten_collector() -> None:
    """What lives now lives on: the collector need not look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
