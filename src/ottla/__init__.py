"""Ottla: a distributed event streaming platform that speaks the Kafka wire protocol.

`ottla.Server` runs a broker inside your program; the command `ottla` runs one beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["Server", "__version__"]

if TYPE_CHECKING:
    from ottla.embed import Server


def __getattr__(name: str) -> object:
    # Imported at first use: the command line and the record worker start without it.
    if name == "Server":
        from ottla.embed import Server

        return Server
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")
