"""One broker as a process, and what can be done to a process.

Its log comes over a pipe, not to a file: a broker whose disk is full must still be able to say so.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from chaos.clock_file import set_clock
from chaos.waiting import TooLate, until

START_SECONDS_MAX: Final = 30.0
STOP_SECONDS_MAX: Final = 30.0
FULL_DISK_BYTES: Final = 4096
"""No file grows beyond this while the disk is full."""
READY: Final = "ottla is ready"
REPOSITORY: Final = Path(__file__).resolve().parents[1]


class Node:
    """Started, killed, paused, starved of disk, wiped, told a wrong time; and started again."""

    def __init__(self, node_id: int, directory: Path, properties: dict[str, str]) -> None:
        self.node_id = node_id
        self.data = directory / "data"
        self.log_path = directory / "log.txt"
        self._config = directory / "server.properties"
        self._clock = directory / "clock"
        directory.mkdir(parents=True, exist_ok=True)
        set_clock(self._clock, 0)
        lines = {**properties, "log.dirs": str(self.data)}
        self._config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._ready = threading.Event()
        self.is_paused = False

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process and wait for nothing. It ends when this one does, because its input ends then."""
        self._join()
        self._ready.clear()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "chaos.stepped", str(self._clock), "serve", "--config", str(self._config)],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OTTLA_SUPERVISED": "1"},
        )
        self._reader = threading.Thread(target=self._keep_log, args=(self._process,), daemon=True)
        self._reader.start()

    def _keep_log(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with self.log_path.open("a") as log:
            for line in process.stdout:
                log.write(line)
                log.flush()
                if READY in line:
                    self._ready.set()

    def wait_ready(self) -> None:
        """TooLate if it is not ready in time, or ends instead."""
        until(lambda: self._ready.is_set() or not self.is_running, f"node {self.node_id} is ready", START_SECONDS_MAX)
        if not self.is_running:
            raise TooLate(f"node {self.node_id} ended instead of starting; its log: {self.log_path}")

    def kill(self) -> None:
        """kill -9."""
        self._signal(signal.SIGKILL)
        self._join()

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self._signal(signal.SIGTERM)
        return self._join()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_paused = False

    def fill_disk(self) -> None:
        """From now on nothing can be written, as far as the process can tell."""
        self._limit_files(FULL_DISK_BYTES)

    def free_disk(self) -> None:
        self._limit_files(resource.RLIM_INFINITY)

    def set_clock(self, shift_ms: int) -> None:
        """Its wall clock is off by so much from now on, also after a restart."""
        set_clock(self._clock, shift_ms)

    def wipe(self) -> None:
        """The disk is replaced by an empty one; only while the process is gone."""
        shutil.rmtree(self.data)

    def _limit_files(self, size: int) -> None:
        if self.is_running and self.pid is not None:
            resource.prlimit(self.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def _join(self) -> int:
        """The exit code of the last process."""
        process, self._process = self._process, None
        if process is None:
            return 0
        try:
            code = process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TooLate(f"node {self.node_id} did not end within {STOP_SECONDS_MAX:.0f} s of being told to") from None
        finally:
            if process.stdin is not None:
                process.stdin.close()
            if self._reader is not None:
                self._reader.join()
            if process.stdout is not None:
                process.stdout.close()
        return code
