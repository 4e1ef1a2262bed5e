"""Which code serves Produce requests with much in them: compiled where that was built, else interpreted.

Both do the same. The compiled one is made when the package is installed where there is a compiler (hatch_build.py), and
not taken where OTTLA_PORTABLE says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.portable import is_portable

if TYPE_CHECKING or is_portable():
    from ottla.api.produce_ahead import ProduceGroup
else:
    try:
        from ottla.api.produce_compiled import ProduceGroup
    except ImportError:
        from ottla.api.produce_ahead import ProduceGroup

__all__ = ["ProduceGroup"]
