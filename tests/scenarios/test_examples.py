"""Every example runs as its first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
COMMANDS = {
    "website_activity.py": [sys.executable, "website_activity.py", "--visits", "20000"],
    "asyncio_client.py": [sys.executable, "asyncio_client.py"],
    "exactly_once.py": [sys.executable, "exactly_once.py", "--kills", "4", "--payments", "800"],
    "bookstore.py": [sys.executable, "bookstore.py", "--logins", "300"],
    "payments.py": [sys.executable, "payments.py", "--orders", "300"],
    "test_with_a_broker.py": [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_with_a_broker.py"],
}
EXPECTED = {
    "website_activity.py": "Every view was counted once, in order",
    "asyncio_client.py": "offset 2: hello 2",
    "exactly_once.py": "Every payment has exactly one receipt.",
    "bookstore.py": "Portal, security, orders and catalogue agree.",
    "payments.py": "the ledger balances to the cent",
    "test_with_a_broker.py": "1 passed",
}


SPARK_EXAMPLES = {"spark_activity.py", "log_aggregation.py", "sensor_alerts.py"}
"""These run in tests/spark, where one Spark runs at a time."""


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(COMMANDS) | SPARK_EXAMPLES


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_runs(name: str) -> None:
    done = subprocess.run(COMMANDS[name], cwd=EXAMPLES, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert EXPECTED[name] in done.stdout
