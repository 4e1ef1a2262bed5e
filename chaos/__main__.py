"""`python -m chaos`."""

from __future__ import annotations

import sys

from chaos.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
