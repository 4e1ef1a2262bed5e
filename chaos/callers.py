"""Which process is at the other end of a connection on this machine. Linux only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

_LOCAL, _REMOTE, _INODE = 1, 2, 9
_TABLES: Final = ("/proc/net/tcp", "/proc/net/tcp6")


def caller_of(from_port: int, to_port: int, pids: Mapping[int, int]) -> int | None:
    """The key of the process that connected from one port to the other; None if it is none of these."""
    inode = _inode(from_port, to_port)
    if inode is None:
        return None
    name = f"socket:[{inode}]"
    return next((key for key, pid in pids.items() if _has_open(pid, name)), None)


def _inode(from_port: int, to_port: int) -> str | None:
    local, remote = f":{from_port:04X}", f":{to_port:04X}"
    for table in _TABLES:
        try:
            with open(table) as lines:
                for line in lines:
                    fields = line.split()
                    if fields[_LOCAL].endswith(local) and fields[_REMOTE].endswith(remote):
                        return fields[_INODE]
        except OSError:
            continue
    return None


def _has_open(pid: int, name: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if os.readlink(f"{folder}/{descriptor}") == name:
                return True
        except OSError:
            continue
    return False
