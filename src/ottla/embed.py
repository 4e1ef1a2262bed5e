"""A broker inside a test, a notebook or a script.

    with ottla.Server() as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap_servers})

The broker runs in a thread of its own, or in a process of its own (`process=True`) where the code around it must not
share an interpreter lock with it. `brokers=3` is a cluster, each broker of it in a process of its own. Without `data`
it lives in a temporary directory that goes when the server stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Protocol, Self

from ottla.model.errors import OttlaError

START_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 30.0


class ServerError(OttlaError):
    """The embedded broker did not start; the message says why."""


class _Runner(Protocol):
    def start(self) -> str: ...

    def stop(self) -> None: ...


DEFAULTS: Final[Mapping[str, object]] = {"group.initial.rebalance.delay.ms": 0}
"""What a test would set anyway."""


class Server:
    """One broker, or a cluster of them, for as long as the `with` (or `async with`) block lasts.

    `config` takes Kafka's own broker keys, for example `{"num.partitions": 4, "auto.create.topics.enable": False}`. One
    default is not Kafka's: the first consumer of a group does not wait three seconds for others. It listens on a free
    port of 127.0.0.1, unless `host`, `port`, or `listeners` in the config says otherwise.
    """

    def __init__(
        self,
        *,
        data: str | Path | None = None,
        port: int | None = None,
        host: str | None = None,
        config: Mapping[str, object] | None = None,
        process: bool = False,
        brokers: int = 1,
    ) -> None:
        if brokers < 1:
            raise ServerError(f"brokers={brokers}: at least one")
        self._data = None if data is None else Path(data)
        self._temporary: Path | None = None
        self._properties = {key: _as_text(value) for key, value in {**DEFAULTS, **(config or {})}.items()}
        if "listeners" not in self._properties:
            host, port = "127.0.0.1" if host is None else host, port or 0
        self._address = (host, port)
        self._process = process or brokers > 1
        self._brokers = brokers
        self._runner: _Runner | None = None
        self._started_by = 0
        """The process that has the broker. One that is forked from it has a copy of this object, and no broker."""
        self._bootstrap_servers = ""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, or several with commas between them, as every Kafka client takes it."""
        if self._runner is None:
            raise ServerError("the server is not running: use it in a `with` block, or call start() first")
        return self._bootstrap_servers

    @property
    def data(self) -> Path:
        """The directory that holds the logs."""
        directory = self._data or self._temporary
        if directory is None:
            raise ServerError("the server is not running, and its data directory is made when it starts")
        return directory

    def start(self) -> Self:
        """Start and return when clients can connect."""
        if self._runner is not None:
            raise ServerError("the server is running already")
        self._started_by = os.getpid()
        if self._data is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="ottla-"))
        host, port = self._address
        runner: _Runner
        if self._process:
            runner = _ProcessRunner(str(self.data), host, port, self._properties, self._brokers)
        else:
            runner = _ThreadRunner(str(self.data), host, port, self._properties)
        try:
            self._bootstrap_servers = runner.start()
        except BaseException:  # Ctrl-C among them
            with contextlib.suppress(Exception):
                runner.stop()
            self._remove_temporary()
            raise
        self._runner = runner
        return self

    def stop(self) -> None:
        """Stop cleanly; harmless when it is not running, and in a process that was forked from that of the broker."""
        runner, self._runner = self._runner, None
        if runner is not None and os.getpid() == self._started_by:
            try:
                runner.stop()
            finally:
                self._remove_temporary()

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        starting = asyncio.ensure_future(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled: what it starts has to be stopped, or nobody would.
            with contextlib.suppress(Exception):
                await starting
            await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


class _ThreadRunner:
    """The broker on an event loop of its own, in a thread of its own."""

    def __init__(self, data: str, host: str | None, port: int | None, properties: Mapping[str, str]) -> None:
        self._options = (data, host, port, properties)
        self._ready: Future[str] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._is_unwanted = False
        """Set when it is to stop, which may be before there is a loop to tell."""
        self._thread = threading.Thread(target=self._run, name="ottla-server", daemon=True)

    def start(self) -> str:
        self._thread.start()
        return self._ready.result(START_SECONDS_MAX)

    def stop(self) -> None:
        self._is_unwanted = True
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(STOP_SECONDS_MAX)
        if self._thread.is_alive():
            raise ServerError(f"the server did not stop within {STOP_SECONDS_MAX:.0f} s")

    def _run(self) -> None:
        try:
            from ottla.broker_process import new_event_loop

            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        from ottla.broker import Broker
        from ottla.logs import configure_for_embedding

        configure_for_embedding()
        data, host, port, properties = self._options
        broker = Broker.from_properties(properties, data=data, host=host, port=port)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        if self._is_unwanted:
            return
        await broker.start()
        try:
            self._ready.set_result(broker.bootstrap_servers)
            await self._stop.wait()
        finally:
            await broker.stop()


class _ProcessRunner:
    """The broker as `ottla serve` in a child process, or several of them below one."""

    def __init__(
        self, data: str, host: str | None, port: int | None, properties: Mapping[str, str], brokers: int
    ) -> None:
        self._command = [sys.executable, "-m", "ottla", "serve", "--data", data]
        for option, value in (("--host", host), ("--port", port)):
            if value is not None:
                self._command += [option, str(value)]
        if brokers > 1:
            self._command += ["--brokers", str(brokers)]
        for key, value in properties.items():
            self._command += ["--set", f"{key}={value}"]
        self._child: subprocess.Popen[str] | None = None

    def start(self) -> str:
        with tempfile.TemporaryFile("w+") as errors:
            child = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
            self._child = child
            watchdog = threading.Timer(START_SECONDS_MAX, child.kill)
            watchdog.start()
            try:
                line = _stdout(child).readline()
            finally:
                watchdog.cancel()
            if "ready" not in line:
                self.stop()
                errors.seek(0)
                raise ServerError(errors.read().strip() or "ottla serve ended without a word")
        return line.split()[-1]

    def stop(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGTERM)
        try:
            child.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        _stdout(child).close()


def _stdout(child: subprocess.Popen[str]) -> IO[str]:
    if child.stdout is None:
        raise ServerError("the child's output is not a pipe")
    return child.stdout


def _as_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)
