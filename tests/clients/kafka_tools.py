"""Apache Kafka's own command line tools, run against whatever broker a test has."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.errors import NotMeasured
from bench.tools import cache_directory, kafka_jars

TOOL_SECONDS_MAX = 120


@dataclass(frozen=True)
class KafkaTools:
    """Kafka's jars and one broker to point them at."""

    jars: Path
    bootstrap_servers: str

    def run(self, main: str, *arguments: str, text: str | None = None, check: bool = True) -> str:
        """What a tool printed, on both its channels."""
        command = ["java", "-Xmx256M", "-XX:TieredStopAtLevel=1", "-cp", f"{self.jars}/*", main, *arguments]
        done = subprocess.run(
            command,
            input=text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TOOL_SECONDS_MAX,
            check=False,
        )
        if check:
            assert done.returncode == 0, done.stdout
        return done.stdout

    def ask(self, main: str, *arguments: str, text: str | None = None) -> str:
        """`run` with the broker's address."""
        return self.run(main, "--bootstrap-server", self.bootstrap_servers, *arguments, text=text)


def find_kafka_tools(bootstrap_servers: str) -> KafkaTools:
    """The tools, or a skip that says what is missing on this machine."""
    try:
        return KafkaTools(kafka_jars(cache_directory()), bootstrap_servers)
    except NotMeasured as reason:
        pytest.skip(f"Apache Kafka's tools cannot be had here: {reason}")
