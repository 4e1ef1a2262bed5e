"""The directory that keeps machine code between runs, so that a machine compiles the kernels once.

What lies there is loaded and run, so it has to be the user's own and nobody else's to write. Where no such directory
can be had, each process compiles into one of its own.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import tempfile
from pathlib import Path
from typing import Final

NUMBA_CACHE_DIR: Final = "NUMBA_CACHE_DIR"
"""The variable that tells numba where to keep machine code."""
_DIGEST_CHARACTERS: Final = 16
_WITHOUT_KERNELS: Final = ("__init__", "cache")


def use_kernel_cache() -> None:
    """Point numba at the directory, unless the user has done so or numba was imported before."""
    if NUMBA_CACHE_DIR not in os.environ and "numba" not in sys.modules:
        os.environ[NUMBA_CACHE_DIR] = kernel_cache_directory()


def kernel_cache_directory() -> str:
    """`$XDG_CACHE_HOME/ottla/numba/<digest of the kernels>`, else the same below the directory for temporary files."""
    digest = kernel_digest()
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    shared_temporary = Path(tempfile.gettempdir()) / f"ottla-numba-{user}"
    for root in (_user_cache() / "ottla" / "numba", shared_temporary):
        directory = root / digest
        if _is_private(root) and _is_private(directory):
            return str(directory)
    return tempfile.mkdtemp(prefix="ottla-numba-")


def kernel_digest() -> str:
    """A name that changes whenever any kernel changes, also one that is only inlined into another."""
    digest = hashlib.sha256()
    for source in kernel_sources():
        digest.update(source.read_bytes())
    return digest.hexdigest()[:_DIGEST_CHARACTERS]


def kernel_sources() -> list[Path]:
    """The files of this package that have kernels in them."""
    return [source for source in sorted(Path(__file__).parent.glob("*.py")) if source.stem not in _WITHOUT_KERNELS]


def _user_cache() -> Path:
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return Path(configured) if os.path.isabs(configured) else Path("~/.cache").expanduser()


def _is_private(directory: Path) -> bool:
    """Make `directory` if it is not there; true if it is ours alone to write."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = directory.lstat()
    except OSError:
        return False
    if not stat.S_ISDIR(facts.st_mode) or not os.access(directory, os.W_OK | os.X_OK):
        return False
    if not hasattr(os, "getuid"):
        return True
    return facts.st_uid == os.getuid() and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
