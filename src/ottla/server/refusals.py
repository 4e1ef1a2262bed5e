"""Log lines about connections that were closed because of what the client did: one per peer and while, not per try."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import structlog

QUIET_SECONDS: Final = 10.0
"""After a line about a peer, further ones are only counted for this long."""
PEERS_REMEMBERED_MAX: Final = 1024

HTTP_METHODS: Final = frozenset({b"GET ", b"POST", b"PUT ", b"HEAD", b"OPTI", b"DELE", b"PATC", b"CONN", b"PRI "})

log = structlog.get_logger("ottla.server")


def recognise(prefix: bytes) -> str | None:
    """What speaks on this port, by the four bytes that should have been a length."""
    if prefix[0] == 0x16 and prefix[1] == 0x03:
        return "a TLS handshake arrived: this listener speaks plain text, so the client must use another port or no TLS"
    if prefix in HTTP_METHODS:
        return "an HTTP request arrived: this port speaks the Kafka protocol"
    if prefix == b"SSH-":
        return "an SSH client arrived: this port speaks the Kafka protocol"
    return None


class Refusals:
    """Writes the lines and counts those it leaves out."""

    __slots__ = ("_now", "_peers")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._peers: dict[str, tuple[float, int]] = {}

    def note(self, host: str, listener: str, reason: str, event: str = "connection closed") -> None:
        now = self._now()
        quiet_until, left_out = self._peers.pop(host, (0.0, 0))
        if now < quiet_until:
            self._peers[host] = (quiet_until, left_out + 1)
            return
        if len(self._peers) >= PEERS_REMEMBERED_MAX:
            del self._peers[next(iter(self._peers))]
        self._peers[host] = (now + QUIET_SECONDS, 0)
        if left_out:
            log.warning(event, reason=reason, peer=host, listener=listener, left_out=left_out)
        else:
            log.warning(event, reason=reason, peer=host, listener=listener)
