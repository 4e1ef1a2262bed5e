"""`python -m simulator`."""

from __future__ import annotations

import os
import sys

from simulator.command import main

if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings must be the same in every run. Threads for arithmetic would only be in the way.
        os.execve(
            sys.executable,
            [sys.executable, "-W", "ignore::RuntimeWarning", "-m", "simulator", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"},
        )
    sys.exit(main(sys.argv[1:]))
