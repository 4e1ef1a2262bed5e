"""What the system says about this process: processor time, memory, open files, bytes read and written."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla.server.metric_text import Family

CPU_SECONDS: Final = Family("process_cpu_seconds_total", "counter", "Processor time in user and system mode.")
OPEN_FILES: Final = Family("process_open_fds", "gauge", "File descriptors that are open.")
FILES_MAX: Final = Family("process_max_fds", "gauge", "File descriptors that may be open.")
RESIDENT_BYTES: Final = Family("process_resident_memory_bytes", "gauge", "Memory of the process that is in use.")
VIRTUAL_BYTES: Final = Family("process_virtual_memory_bytes", "gauge", "Addresses that the process has reserved.")
START_SECONDS: Final = Family("process_start_time_seconds", "gauge", "When the process began, since 1970.")
DISK_READ: Final = Family(
    "kafka_server_kafkaserver_linux_disk_read_bytes", "gauge", "Bytes that the process has made the disks read."
)
DISK_WRITTEN: Final = Family(
    "kafka_server_kafkaserver_linux_disk_write_bytes", "gauge", "Bytes that the process has made the disks write."
)

Values = list[tuple[Family, float]]


class _Stat(NamedTuple):
    """The fields of /proc/self/stat that are of use, in the system's units."""

    start_ticks: int
    virtual_bytes: int
    resident_pages: int


def process_values() -> Values:  # runs in a thread
    """What can be found out here; where there is no /proc some of it stays out."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    values: Values = [
        (CPU_SECONDS, usage.ru_utime + usage.ru_stime),
        (FILES_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
    ]
    with contextlib.suppress(OSError):
        # One of them is open for the listing itself.
        values.append((OPEN_FILES, len(os.listdir("/dev/fd")) - 1))
    with contextlib.suppress(OSError, ValueError, IndexError, KeyError):
        values += _memory_and_start()
    with contextlib.suppress(OSError, ValueError, KeyError):
        values += _disk()
    return values


def _memory_and_start() -> Iterator[tuple[Family, float]]:  # runs in a thread
    stat = _stat()
    yield VIRTUAL_BYTES, stat.virtual_bytes
    yield RESIDENT_BYTES, stat.resident_pages * resource.getpagesize()
    boot_seconds = int(_fields("/proc/stat")["btime"])
    yield START_SECONDS, boot_seconds + stat.start_ticks / os.sysconf("SC_CLK_TCK")


def _stat() -> _Stat:  # runs in a thread
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        # The second field is the program's name in parentheses, which may hold spaces and parentheses.
        fields = file.read().rpartition(")")[2].split()
    return _Stat(start_ticks=int(fields[19]), virtual_bytes=int(fields[20]), resident_pages=int(fields[21]))


def _disk() -> Iterator[tuple[Family, float]]:  # runs in a thread
    fields = _fields("/proc/self/io")
    yield DISK_READ, int(fields["read_bytes:"])
    yield DISK_WRITTEN, int(fields["write_bytes:"])


def _fields(path: str) -> dict[str, str]:  # runs in a thread
    """The second word of each line by the first."""
    with open(path, encoding="ascii") as file:
        return {words[0]: words[1] for line in file if len(words := line.split(maxsplit=2)) > 1}
