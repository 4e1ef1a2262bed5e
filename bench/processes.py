"""Processes that a run starts, ends for sure, and charges for their time and memory. Reads /proc, so Linux only."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from bench.errors import NotMeasured

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
STOP_TIMEOUT_S = 60

_running: dict[int, subprocess.Popen[str]] = {}


def spawn(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a process in a session of its own, so that its children can be ended with it."""
    process = subprocess.Popen(command, start_new_session=True, text=True, errors="replace", **options)
    _running[process.pid] = process
    return process


def stop(process: subprocess.Popen[str], timeout_s: float = STOP_TIMEOUT_S) -> None:
    """SIGTERM and time to leave; then SIGKILL to whatever is left of its session."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
    kill_session(process)


def kill_session(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _running.pop(process.pid, None)


@atexit.register
def stop_everything() -> None:
    for process in list(_running.values()):
        kill_session(process)


def run(command: Sequence[str], timeout_s: float, cwd: Path | None = None) -> str:
    """The output of a command that ends in time and well."""
    pipe = subprocess.PIPE
    process = spawn(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, cwd=cwd)
    try:
        output, errors = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise NotMeasured(f"{Path(command[0]).name} did not end within {timeout_s:.0f} s") from None
    finally:
        kill_session(process)
    if process.returncode:
        raise NotMeasured(last_line(output, errors) or f"{Path(command[0]).name} left with {process.returncode}")
    return output


def run_json(command: Sequence[str], timeout_s: float, cwd: Path | None = None) -> dict[str, float]:
    """The JSON object that a command prints last."""
    return read_json(run(command, timeout_s, cwd).strip().rpartition("\n")[2])


def read_json(line: str) -> dict[str, float]:
    try:
        result: dict[str, float] = json.loads(line)
    except ValueError:
        raise NotMeasured(f"no result: {line[:120]!r}") from None
    if "error" in result:
        raise NotMeasured(str(result["error"]))
    return result


def last_line(output: str, errors: str) -> str:
    for line in reversed(output.splitlines() + errors.splitlines()):
        if line.startswith('{"error"'):
            return str(json.loads(line)["error"])
    lines = [line for line in (errors.strip() or output.strip()).splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else ""


def read_line(stream: IO[str], process: subprocess.Popen[str], timeout_s: float) -> str:
    """One line of a child that stays; a child that says nothing in time is ended, which ends the read."""
    deadline = time.monotonic() + timeout_s
    os.set_blocking(stream.fileno(), False)
    line = ""
    while not line.endswith("\n"):
        if time.monotonic() > deadline or (process.poll() is not None and not line):
            raise NotMeasured("the load program said nothing in time")
        line += stream.readline() or ""
        time.sleep(0.01)
    return line


def process_stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, or nothing when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def family(pid: int) -> list[int]:
    """A process and its descendants, and whoever else lives in its session."""
    parents: dict[int, list[int]] = {}
    sessions: list[int] = []
    for entry in os.listdir("/proc"):
        stat = process_stat(int(entry)) if entry.isdigit() else []
        if stat:
            parents.setdefault(int(stat[1]), []).append(int(entry))
            if int(stat[3]) == pid:
                sessions.append(int(entry))
    found: set[int] = set()
    waiting = [pid, *sessions]
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting += parents.get(current, [])
    return sorted(found)


def cpu_seconds(pid: int) -> float:
    """User and system time of a family, with that of children who have left."""
    return sum(sum(map(int, process_stat(member)[11:15])) for member in family(pid)) / TICKS_PER_SECOND


def resident_mb(pid: int) -> float:
    """Resident memory of a family, in MB of 10^6 bytes."""
    pages = [process_stat(member)[21:22] for member in family(pid)]
    return sum(int(found[0]) for found in pages if found) * PAGE_BYTES / 1e6


class Neighbours:
    """How much of a core processes that are not ours used between its making and `percent()`."""

    def __init__(self) -> None:
        self._at, self._busy = time.monotonic(), self._foreign_s()

    def percent(self) -> float:
        elapsed = max(time.monotonic() - self._at, 0.01)
        return max(0.0, (self._foreign_s() - self._busy) / elapsed * 100)

    @staticmethod
    def _foreign_s() -> float:
        user, nice, system, _idle, _wait, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
        ours = {member for pid in [os.getpid(), *_running] for member in family(pid)}
        own = sum(sum(map(int, process_stat(member)[11:15])) for member in ours)
        return (user + nice + system + irq + softirq - own) / TICKS_PER_SECOND
