"""Real broker processes for scenarios: started, killed, started again on the same directory and port."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Self

from ottla.cli.free_ports import free_port

START_SECONDS_MAX = 20.0

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["ottla.broker_process", "ottla.logs"])


def _serve(data: str, port: int, properties: dict[str, str], log_path: str) -> None:
    from ottla.broker_process import BrokerOptions, run_broker
    from ottla.logs import configure

    configure("console", "info")
    descriptor = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.exit(run_broker(BrokerOptions(data=data, port=port, properties=properties)))


class BrokerProcess:
    """One broker in a process of its own, forked from a warm interpreter so that a start takes some 50 ms."""

    def __init__(self, directory: Path, properties: dict[str, str] | None = None) -> None:
        self.data = directory / "data"
        self.log_path = directory / "broker.txt"
        self.port = free_port()
        self.properties = properties or {}
        self._process: BaseProcess | None = None

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def begin(self) -> BaseProcess:
        """Start the process and wait for nothing."""
        arguments = (str(self.data), self.port, self.properties, str(self.log_path))
        process = self._process = _context.Process(target=_serve, args=arguments)
        process.start()
        return process

    def start(self) -> None:
        process = self.begin()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            assert process.is_alive(), f"the broker ended: {self.log_path.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"the broker does not answer: {self.log_path.read_text()[-2000:]}"
            process.join(0.01)

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """kill -9: nothing is flushed, closed or said goodbye to."""
        os.kill(self.pid, signal.SIGKILL)
        self._join()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        os.kill(self.pid, signal.SIGTERM)
        return self._join()

    def wait(self) -> int:
        """The exit code of a broker that ends by itself."""
        return self._join()

    def _join(self) -> int:
        process, self._process = self._process, None
        assert process is not None
        process.join(30)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError("the broker did not end within 30 s")
        return process.exitcode

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            os.kill(self.pid, signal.SIGKILL)
            self._join()
