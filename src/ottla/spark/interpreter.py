"""The Python that Spark's workers run: this one, started three times as fast.

Spark puts a packed copy of PySpark, `python/lib/pyspark.zip`, before everything else on the path of each Python process
that it starts. Nothing compiled is kept in an archive, so each of them compiles PySpark anew: more than a second of
computing, of the ten that Spark gives a process to start, for what the installed package has ready. A script of a few
lines takes the packed copy off the path. And where a warm process waits to be a query's Python (`warm_start`), the
script starts the little program that asks it to.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Final

from ottla.spark.scripts import kept_script

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
"""The module that Spark runs in a new Python for each streaming query."""

_DIGEST_CHARACTERS: Final = 12
_SCRIPT: Final = """#!/bin/sh
# Starts {python} with the installed PySpark in place of the packed one.
kept=
IFS=:
set -f
for each in $PYTHONPATH; do
    case "$each" in
    "{packed}"/*.zip) ;;
    *) kept="$kept${{kept:+:}}$each" ;;
    esac
done
PYTHONPATH="$kept"
export PYTHONPATH
case "$OTTLA_WARM_START:$*" in
/*":-m:{runner}")
    exec "{python}" -I -S "{launcher}" "{python}" "$OTTLA_WARM_START" "$@" ;;
esac
exec "{python}" "$@"
"""


def worker_python(master: str, cache: Path | None = None) -> str:
    """What PYSPARK_PYTHON should be. On other machines than this one there is no script."""
    packed = packed_pyspark()
    if packed is None or not master.startswith("local") or os.name != "posix":
        return sys.executable
    launcher = Path(__file__).with_name("warm_launcher.py")
    text = _SCRIPT.format(python=sys.executable, packed=packed, launcher=launcher, runner=RUNNER)
    digest = hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    root = cache or Path("~/.cache/ottla/python").expanduser()
    try:
        return str(kept_script(root / digest / "python", text))
    except OSError:
        return sys.executable  # a home that cannot be written to


def packed_pyspark() -> Path | None:
    """Where the packed copy of the PySpark lies that is installed here; None if Spark is another one."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    packed = installed / "python" / "lib"
    other = os.environ.get("SPARK_HOME", "")
    if not (packed / "pyspark.zip").is_file() or (other and Path(other).resolve() != installed.resolve()):
        return None
    return packed
