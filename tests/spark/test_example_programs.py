"""The examples with Spark run as their first lines say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS_MAX = 600


def run(*command: str) -> str:
    """What it says, if it ends well."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        # They end before the optimizing compiler has won back what it costs.
        env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


def test_website_activity() -> None:
    said = run("spark_activity.py", "--views", "1000")
    assert "Every view was counted once." in said
    assert "lag 0" in said


def test_log_aggregation() -> None:
    said = run("log_aggregation.py", "--lines", "2000")
    assert re.search(r"^\d\d+ lines were none, and are put aside\.$", said, re.MULTILINE)
    assert "Every line is in one place, once." in said


def test_sensor_alerts() -> None:
    said = run("sensor_alerts.py", "--readings", "3000")
    ending = r"^\d+ alerts, each once; 25 readings came much too late and changed nothing\.$"
    assert re.search(ending, said, re.MULTILINE)
    assert "was too hot" in said
