"""Ports to listen on that are known before anybody listens, as the brokers of a cluster must know each other's."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import sys
from collections import deque
from pathlib import Path
from typing import Final

_FIRST: Final = 10_000
_EPHEMERAL_FIRST: Final = 32_768
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES_MAX: Final = 1_000
_HELD_MAX: Final = 200
_any = random.SystemRandom()
_held: Final[deque[int]] = deque()


def free_port() -> int:
    """A port of this machine that is free now, and that nobody is given who asks for any port, here or there.

    A port from the system (bind to 0, or the near end of a connection) would be free now as well, but the system may
    give it to the next who asks, before the broker that it is meant for has started. And on Linux a port that was given
    out here is held, so that no process that asks here is given it too: see `_hold`.
    """
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """So many of them, all different."""
    candidates = range(_FIRST, _ephemeral_first())
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        ports = [_bound(probe, candidates) for probe in probes]
        for probe in probes:
            _hold(probe)
        return ports


def is_taken(host: str, port: int) -> bool:
    """Whether another process listens there already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with contextlib.closing(socket.socket(family)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _bound(probe: socket.socket, candidates: range) -> int:
    for _ in range(_TRIES_MAX if candidates else 0):
        with contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", _any.choice(candidates)))
            break
    else:
        probe.bind(("127.0.0.1", 0))
    port: int = probe.getsockname()[1]
    return port


def _hold(probe: socket.socket) -> None:
    """Keep the port from others who ask here, but not from the broker that it is meant for.

    Linux lets a socket listen where another is bound that does not listen, if both have SO_REUSEADDR, as every server's
    has; a probe has not. The newest ports are held until the process ends; brokers have long taken the others.
    """
    if sys.platform != "linux":
        return
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    _held.append(probe.detach())
    if len(_held) > _HELD_MAX:
        os.close(_held.popleft())


def _ephemeral_first() -> int:
    """The lowest port that the system gives to who asks for any."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    return _EPHEMERAL_FIRST
