"""Consume, process, produce: workers are killed again and again, and what comes out is what went in, once.

The worker is the one of examples/exactly_once.py, which says what it does and why that is enough.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from tests.scenarios.brokers import BrokerProcess

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "exactly_once.py"
PROPERTIES = {"group.initial.rebalance.delay.ms": "0"}
SEED = 20260101


@pytest.fixture(scope="module")
def example() -> ModuleType:
    """The example as a module that worker processes can import too."""
    folder = str(EXAMPLE.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.find_spec("exactly_once")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["exactly_once"] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


@pytest.mark.timeout(240)
def test_fifty_kills_of_the_workers_lose_nothing_and_double_nothing(example: ModuleType, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, PROPERTIES) as broker:
        wrong = example.run(broker.bootstrap_servers, payments=6_000, kills=50, seed=SEED, console=Console(quiet=True))
    assert wrong == []
