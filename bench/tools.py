"""What a run needs besides Python: Kafka's jars through Maven, Java, and the load program built with Go.

Everything is kept in $OTTLA_BENCH_CACHE, by default ~/.cache/ottla/bench. What is missing is a reason, not a crash:
without Java only Ottla is measured, without Go the figures that want raw load are left out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.errors import NotMeasured, ToolMissing
from bench.processes import run

HERE = Path(__file__).resolve().parent
KAFKA_VERSION = "4.3.0"
KAFKA_JAR = f"kafka_2.13-{KAFKA_VERSION}.jar"
SPARK_VERSION = "4.2.0"
SPARK_JAR = f"spark-sql-kafka-0-10_2.13-{SPARK_VERSION}.jar"
JAVA_VERSION_MIN = 17
DOWNLOAD_TIMEOUT_S = 900


def cache_directory() -> Path:
    given = os.environ.get("OTTLA_BENCH_CACHE")
    return Path(given) if given else Path.home() / ".cache" / "ottla" / "bench"


@dataclass(frozen=True, slots=True)
class Tools:
    """Paths of what was found, or why it was not."""

    kafka_jars: Path | None
    kafka_missing: str
    load: Path | None
    load_missing: str

    def load_program(self) -> str:
        if self.load is None:
            raise ToolMissing(self.load_missing)
        return str(self.load)

    def java(self, main: str, *arguments: str, options: Sequence[str] = ()) -> list[str]:
        """A command line on Kafka's class path."""
        if self.kafka_jars is None:
            raise ToolMissing(self.kafka_missing)
        return ["java", *options, "-cp", f"{self.kafka_jars}/*", main, *arguments]


def find_tools() -> Tools:
    jars = load = None
    kafka_missing = load_missing = ""
    try:
        jars = kafka_jars(cache_directory())
    except NotMeasured as reason:
        kafka_missing = str(reason)
    try:
        load = load_program(cache_directory())
    except NotMeasured as reason:
        load_missing = str(reason)
    return Tools(jars, kafka_missing, load, load_missing)


def java_version() -> str:
    """What `java -version` says first; ToolMissing where there is none that Kafka can use."""
    if not shutil.which("java"):
        raise ToolMissing("no java on the path")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "(\d+)', said)
    if not found or int(found[1]) < JAVA_VERSION_MIN:
        raise ToolMissing(f"Kafka needs Java {JAVA_VERSION_MIN}, found: {said.splitlines()[:1]}")
    return said.splitlines()[0].strip()


def kafka_jars(cache: Path) -> Path:
    """The folder with Kafka's jars."""
    return fetched_jars(cache, "kafka", KAFKA_JAR)


def spark_jars(cache: Path) -> Path:
    """The folder with the jars of Spark's own Kafka connector."""
    return fetched_jars(cache, "spark", SPARK_JAR)


def spark_python(cache: Path) -> Path:
    """The Python of an environment with the PySpark that those jars were made for; made at first use."""
    environment = cache / f"pyspark-{SPARK_VERSION}"
    python = environment / "bin" / "python"
    if python.exists():
        return python
    partial = environment.with_name(f"{environment.name}.{os.getpid()}")
    try:
        run([sys.executable, "-m", "venv", str(partial)], DOWNLOAD_TIMEOUT_S)
        install = [str(partial / "bin" / "python"), "-m", "pip", "install", "-q", f"pyspark=={SPARK_VERSION}"]
        run(install, DOWNLOAD_TIMEOUT_S)
    except NotMeasured as reason:
        shutil.rmtree(partial, ignore_errors=True)
        raise ToolMissing(f"no PySpark {SPARK_VERSION}: {reason}") from None
    partial.rename(environment)
    return python


def fetched_jars(cache: Path, name: str, first: str) -> Path:
    """A folder filled by Maven at first use, whole or not at all; `first` is a jar that must be there."""
    java_version()
    jars = cache / "jars" / name
    if (jars / first).exists():
        return jars
    if not shutil.which("mvn"):
        raise ToolMissing(f"no mvn on the path to fetch the jars of {name} with")
    partial = jars.with_name(f"{name}.{os.getpid()}")
    copy = ["mvn", "-q", "-B", "-f", str(HERE / name / "pom.xml"), "dependency:copy-dependencies"]
    run([*copy, f"-DoutputDirectory={partial}"], DOWNLOAD_TIMEOUT_S)
    shutil.rmtree(jars, ignore_errors=True)
    partial.rename(jars)
    return jars


def load_program(cache: Path) -> Path:
    """The load program, built again when its source has changed."""
    sources = sorted((HERE / "load").glob("*.go"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    program = cache / f"load-{digest}"
    if program.exists():
        return program
    if not shutil.which("go"):
        raise ToolMissing("no go on the path to build the load program with")
    cache.mkdir(parents=True, exist_ok=True)
    run(["go", "build", "-buildvcs=false", "-o", str(program), "."], DOWNLOAD_TIMEOUT_S, cwd=HERE / "load")
    return program


if __name__ == "__main__":
    # For `make test`, before the tests run side by side: what cannot be had is a reason to skip, not to fail.
    try:
        print(f"Apache Kafka's tools for the tests: {kafka_jars(cache_directory())}")
    except NotMeasured as reason:
        print(f"tests with Apache Kafka's tools will be skipped: {reason}")
    try:
        print(f"Spark's own Kafka connector for the tests: {spark_jars(cache_directory())}")
    except NotMeasured as reason:
        print(f"tests beside Spark's own Kafka connector will be skipped: {reason}")
