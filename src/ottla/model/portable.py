"""Whether to do without what only some machines have, although it is there: to try it, and for tests."""

from __future__ import annotations

import os
from typing import Final

VARIABLE: Final = "OTTLA_PORTABLE"


def is_portable() -> bool:
    return os.environ.get(VARIABLE, "0") not in ("", "0")
