"""A broker that starts in a fifth of a second does not import what it may never need."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numba", "numpy", "llvmlite", "typer", "click", "pyspark", "pyarrow", "matplotlib", "kio", "pytest")


def loaded_with(module: str) -> set[str]:
    """What a fresh interpreter has loaded after an import, by top-level name."""
    code = f"import sys, {module}; print(*{{name.split('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_a_broker_loads_nothing_heavy() -> None:
    assert not loaded_with("ottla.broker_process").intersection(HEAVY)


def test_a_client_loads_nothing_of_the_broker() -> None:
    assert not loaded_with("ottla.client.admin").intersection({*HEAVY, "uvloop", "structlog"})


@pytest.mark.parametrize("module", ["numpy", "json"])
def test_what_is_loaded_is_seen(module: str) -> None:
    assert module in loaded_with(module)
