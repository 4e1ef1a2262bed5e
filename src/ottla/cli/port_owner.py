"""Which process listens on a port of this machine, as far as /proc tells. Best effort: None where it does not."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_LISTENING: Final = "0A"


class PortOwner(NamedTuple):
    """A listening process; pid 0 where it belongs to somebody else."""

    pid: int
    command: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})" if self.pid else "a process of another user"


def port_owner(port: int, proc: Path = Path("/proc")) -> PortOwner | None:
    """The process that listens on `port`, whatever address it is bound to."""
    inodes = {inode for bound, inode in _listeners(proc) if bound == port}
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in _pids(proc):
        if _holds(proc / str(pid) / "fd", wanted):
            return PortOwner(pid, _command(proc, pid))
    return PortOwner(0, "")


def is_local(host: str) -> bool:
    """Whether the name means this machine: an address that a socket here can be bound to."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
            return True
    return False


def _listeners(proc: Path) -> Iterator[tuple[int, str]]:
    """Port and socket inode of every listening TCP socket."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if len(fields) > 9 and fields[3] == _LISTENING:
                    yield int(fields[1].rpartition(":")[2], 16), fields[9]


def _pids(proc: Path) -> list[int]:
    with contextlib.suppress(OSError):
        return sorted(int(entry) for entry in os.listdir(proc) if entry.isdecimal())
    return []


def _holds(descriptors: Path, wanted: set[str]) -> bool:
    with contextlib.suppress(OSError):
        for entry in os.listdir(descriptors):
            with contextlib.suppress(OSError):
                if os.readlink(descriptors / entry) in wanted:
                    return True
    return False


def _command(proc: Path, pid: int) -> str:
    with contextlib.suppress(OSError):
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")
        shown = _on_one_line(" ".join(word.decode(errors="replace") for word in words[:3] if word))
        return shown if len(shown) <= 60 else shown[:57] + "..."
    return "?"


def _on_one_line(text: str) -> str:
    """A process may be called anything: a program in its command line has line ends, a name may have escapes."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
