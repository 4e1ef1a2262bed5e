"""The examples with Spark run as their first lines say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SECONDS_MAX = 400


def test_website_activity() -> None:
    command = [sys.executable, "spark_activity.py", "--views", "1000"]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "Every view was counted once." in done.stdout
    assert "lag 0" in done.stdout
