"""What `ottla doctor` looks at on this machine: the data directory, the disk, limits, Python itself."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ottla.cli.finding import Finding, fail, ok, warn
from ottla.cli.output import size_text
from ottla.model import open_files

OPEN_FILES_WANTED: Final = 10_000
FREE_BYTES_LOW: Final = 2 << 30
FREE_BYTES_NONE: Final = 100 << 20
LOCK_NAME: Final = ".lock"
OF_THE_SYSTEM: Final = "/usr"
OPTIMISED: Final = "--enable-optimizations"
COMPILED: Final = "ottla.wire.produced"
"""The lowest of the compiled modules: where it is, the others are."""
PLAINLY: Final = "not optimised by profile"


def check_machine(data: Path | None) -> Iterator[Finding]:
    """Every check that needs no broker."""
    if data is not None:
        yield from check_data(data)
    yield check_open_files()
    yield check_interpreter()
    yield check_compiled()


def check_data(data: Path) -> Iterator[Finding]:
    """Whether a broker could keep its logs there."""
    check = "data directory"
    if data.exists() and not data.is_dir():
        yield fail(check, f"{data} is a file", "name a directory with --data")
        return
    place = data
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        yield fail(check, f"{place} is not writable for this user", "change its owner, or choose another with --data")
        return
    yield ok(check, f"{data} is writable" if data.exists() else f"{data} does not exist yet and can be made")
    yield _check_lock(data)
    yield _check_free(place)


def _check_lock(data: Path) -> Finding:
    check = "data directory lock"
    try:
        descriptor = os.open(data / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return ok(check, "no broker has used it yet")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return warn(check, f"a broker is running on {data}", "a second one needs another --data; stop this one first")
    finally:
        os.close(descriptor)
    return ok(check, "no broker uses it at the moment")


def _check_free(place: Path) -> Finding:
    check = "disk space"
    usage = shutil.disk_usage(place)
    seen = f"{size_text(usage.free)} of {size_text(usage.total)} are free at {place}"
    if usage.free < FREE_BYTES_NONE:
        return fail(check, seen, "make room, or lower retention.bytes and retention.ms")
    if usage.free < FREE_BYTES_LOW:
        return warn(check, seen, "make room before the broker runs out of it")
    return ok(check, seen)


def check_open_files() -> Finding:
    """A broker holds files of every partition open, and a socket for each client."""
    files = open_files.obtainable()
    seen = f"a broker may have {files} open at once"
    if files >= OPEN_FILES_WANTED:
        return ok("open files", seen)
    return warn(
        "open files", seen, f"raise the hard limit, with `ulimit -Hn {OPEN_FILES_WANTED}` as root or LimitNOFILE="
    )


def how_compiled() -> str:
    """What is known of how this Python was made."""
    if sys.base_prefix == OF_THE_SYSTEM:
        return "of the distribution"
    told = str(sysconfig.get_config_var("CONFIG_ARGS") or "")
    if not told:
        return "compiled somehow"
    return "optimised by profile" if OPTIMISED in told else PLAINLY


def check_interpreter() -> Finding:
    """What a broker computes takes longer on a Python that was compiled plainly, as version managers do. Distributions
    do not say how they compiled theirs, and optimise it."""
    seen = f"Python {platform.python_version()}"
    if how_compiled() != PLAINLY:
        return ok("interpreter", seen)
    return warn(
        "interpreter",
        f"{seen} was compiled without profile-guided optimisation: to load groups takes a broker longer on it",
        f"take the system's Python, or compile it with {OPTIMISED} --with-lto",
    )


def check_compiled() -> Finding:
    """Long Produce requests are served by compiled code where it could be built."""
    check = "compiled code"
    if importlib.util.find_spec(COMPILED) is not None:
        return ok(check, "long produce requests are served by it")
    return warn(
        check,
        "there is none: producers with much to send cost a quarter more processor time",
        "install a C compiler and Python's headers, then Ottla again",
    )
