"""How many files a process may have open: the limit that it was started with, and how far it may raise that itself.

Systems start processes with a low limit because of programs that cannot cope with more. A broker can, and needs a file
for every client and for every segment that is read or written; so it takes what it may have, as a JVM does.
"""

from __future__ import annotations

import resource
from typing import Final

from ottla.model.limits import LOG_FILES_OPEN_MAX

LOG_FILES_MIN: Final = 16
FILES_WANTED_MAX: Final = 1 << 20
"""Where there is no limit, or a higher one: more are of no use."""
FILES_ELSEWHERE_MAX: Final = 10_240
"""What macOS allows a process that says how many it wants, whatever its limit is said to be."""


def limit() -> int | None:
    """As it is now; None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def for_logs() -> int:
    """Files of logs that may stay open: half of what the system allows the process, the rest is for connections."""
    files = limit()
    return LOG_FILES_OPEN_MAX if files is None else max(LOG_FILES_MIN, min(LOG_FILES_OPEN_MAX, files // 2))


def obtainable() -> int:
    """What `take_all` comes to, on Linux."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _capped(soft) if soft in (hard, resource.RLIM_INFINITY) else max(soft, _capped(hard))


def take_all() -> int:
    """Raise this process' limit as far as it may; returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (obtainable(), min(obtainable(), FILES_ELSEWHERE_MAX)):
        if soft == resource.RLIM_INFINITY or wanted <= soft:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            continue
        return wanted
    return _capped(soft)


def _capped(limit: int) -> int:
    return FILES_WANTED_MAX if limit == resource.RLIM_INFINITY else min(limit, FILES_WANTED_MAX)
