"""`ottla serve --brokers N`: one process that starts N brokers, watches over them, and stops them.

Theory of operation. Each broker is a child process, `ottla serve` with its own directory and port. The parent reads
their standard output, where each says when it is ready, and waits for nothing else. A child that dies before all were
ready ends the whole: something is wrong that a restart does not cure. One that dies later is started again, after a
pause that grows while that goes on. Children notice by the end of their standard input that the parent is gone, and
stop cleanly; so nothing is left behind, whatever ends the parent.

What an editor must keep true: no child is waited for without a bound, and none is forgotten: whatever happens, `run`
returns when all have ended.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO, Final

from ottla.cli.cluster_plan import PlannedBroker, plan_cluster
from ottla.cli.failures import CommandError, Exit, UsageError, say
from ottla.cli.free_ports import is_taken
from ottla.cli.serve_options import ServeOptions
from ottla.model.configs.quorum import Address
from ottla.model.configs.resolve import BrokerConfig

STOP_SECONDS_MAX: Final = 30.0
RESTART_SECONDS: Final = 0.5
RESTART_SECONDS_MAX: Final = 30.0
STEADY_SECONDS: Final = 60.0
"""A broker that ran for so long has recovered: its next restart does not wait long."""
SUPERVISED: Final = "OTTLA_SUPERVISED"
"""Set in the environment of children: their standard input ends when they are to stop."""


def run_cluster(options: ServeOptions, properties: dict[str, str], broker_count: int) -> int:
    """Run that many brokers until SIGTERM or SIGINT; returns the exit code."""
    data = options.data or properties.pop("log.dirs", None) or properties.pop("log.dir", None)
    if data is None or "," in data:
        raise UsageError("--brokers: say with --data in which directory the brokers are to keep theirs")
    BrokerConfig.from_properties(properties)  # a mistake in it is said once, not by each broker
    planned = plan_cluster(os.path.abspath(data), broker_count, options.host, options.port, properties)
    for broker in planned:
        # Brokers would find another cluster there, and advise about that.
        if is_taken(broker.host, broker.port):
            raise CommandError(f"{broker.host}:{broker.port}: another process listens there; choose another --port")
    return Supervisor([Child(broker, _command(broker, options)) for broker in planned]).run()


def _command(broker: PlannedBroker, options: ServeOptions) -> list[str]:
    command = [sys.executable, "-m", "ottla", "serve", "--data", broker.data]
    command += ["--host", broker.host, "--port", str(broker.port)]
    if options.metrics_port is not None:
        port = options.metrics_port + broker.node_id - 1 if options.metrics_port else 0
        command += ["--metrics-port", str(port)]
    if options.metrics_host is not None:
        command += ["--metrics-host", options.metrics_host]
    if options.log_format is not None:
        command += ["--log-format", options.log_format]
    if options.log_level is not None:
        command += ["--log-level", options.log_level]
    for key, value in broker.properties.items():
        command += ["--set", f"{key}={value}"]
    return command


class Child:
    """One broker's process, which may be a second or third one by now."""

    def __init__(self, broker: PlannedBroker, command: Sequence[str]) -> None:
        self.name = f"broker {broker.node_id}"
        self.address = str(Address(broker.host, broker.port))
        self.ready = False
        self.exit_code: int | None = None
        self.start_at: float | None = None
        """When it is to be started again."""
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._pause = RESTART_SECONDS

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def output(self) -> IO[bytes]:
        if self._process is None or self._process.stdout is None:
            raise UsageError(f"{self.name} does not run")
        return self._process.stdout

    def start(self) -> None:
        self.start_at = None
        self._started_at = time.monotonic()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, SUPERVISED: "1"},
            # A Ctrl-C at the terminal is the parent's to pass on.
            start_new_session=True,
        )
        os.set_blocking(self.output.fileno(), False)

    def read(self) -> bool:
        """Take what it says; False when it has ended."""
        try:
            said = os.read(self.output.fileno(), 4096)
        except BlockingIOError:
            return True
        self.ready = self.ready or b"ready" in said
        return said != b""

    def ended(self) -> None:
        """Its output has ended, so it has, or is about to."""
        process, self._process = self._process, None
        if process is None:
            return
        _close(process)
        try:
            self.exit_code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            self.exit_code = process.wait()
        if time.monotonic() - self._started_at > STEADY_SECONDS:
            self._pause = RESTART_SECONDS

    def restart_later(self) -> float:
        pause, self._pause = self._pause, min(self._pause * 2, RESTART_SECONDS_MAX)
        self.start_at = time.monotonic() + pause
        return pause

    def stop(self) -> None:
        """Have it stop cleanly. All others do too, so that there is nobody to hand over to: SIGTERM would try."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()


def _close(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()


class Supervisor:
    """Starts children, and has them running until it is told to stop."""

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = children
        self._selector = selectors.DefaultSelector()
        self._told = 0
        """How often a signal has said stop."""
        self._heeded = 0
        self._stopping = False
        self._was_ready = False
        self._exit_code = int(Exit.OK)
        self._kill_at: float | None = None

    def run(self) -> int:
        """Returns when all children have ended."""
        with self._signals():
            for child in self._children:
                self._start(child)
            while any(child.running or child.start_at is not None for child in self._children):
                self._turn()
        return self._exit_code

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Signals wake the selector. Only the main thread may do this, and a command runs there."""
        receiving, sending = socket.socketpair()
        sending.setblocking(False)
        receiving.setblocking(False)
        wakeup = signal.set_wakeup_fd(sending.fileno(), warn_on_full_buffer=False)
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.signal(number, self._tell) for number in numbers]
        self._selector.register(receiving, selectors.EVENT_READ, None)
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            self._selector.close()
            receiving.close()
            sending.close()

    def _tell(self, _number: int, _frame: object) -> None:
        self._told += 1

    def _turn(self) -> None:
        for key, _ in self._selector.select(self._seconds_left()):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    key.fileobj.recv(64)  # type: ignore[union-attr]  # the signals' socket
            elif not key.data.read():
                self._ended(key.data)
        while self._heeded < self._told:
            self._heeded += 1
            self._stop()
        now = time.monotonic()
        for child in self._children:
            if child.start_at is not None and child.start_at <= now:
                self._start(child)
        if self._kill_at is not None and self._kill_at <= now:
            self._kill_at = None
            for child in self._children:
                child.kill()
        self._say_when_ready()

    def _seconds_left(self) -> float | None:
        times = [child.start_at for child in self._children if child.start_at is not None]
        times += [] if self._kill_at is None else [self._kill_at]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _start(self, child: Child) -> None:
        child.start()
        self._selector.register(child.output, selectors.EVENT_READ, child)

    def _say_when_ready(self) -> None:
        if not self._was_ready and not self._stopping and all(child.ready for child in self._children):
            self._was_ready = True
            print(f"ottla is ready on {','.join(child.address for child in self._children)}", flush=True)

    def _ended(self, child: Child) -> None:
        self._selector.unregister(child.output)
        child.ended()
        if self._stopping:
            if child.exit_code:
                say(f"{child.name} ended with code {child.exit_code}")
                self._exit_code = self._exit_code or int(Exit.FAILED)
        elif self._was_ready:
            pause = child.restart_later()
            say(f"{child.name} ended with code {child.exit_code}, it is started again in {pause:.1f} s")
        else:
            say(f"{child.name} could not start, so the others stop")
            self._exit_code = child.exit_code if child.exit_code and child.exit_code > 0 else int(Exit.FAILED)
            self._stop()

    def _stop(self) -> None:
        """The first time gently; the second time, or when that takes too long, at once."""
        for child in self._children:
            child.start_at = None
        self._kill_at = time.monotonic() + (0.0 if self._stopping else STOP_SECONDS_MAX)
        if not self._stopping:
            self._stopping = True
            for child in self._children:
                child.stop()
