"""kafka-python's own integration tests, run against Ottla: `make clients`.

They come with its source distribution, which is fetched from the package index into the cache; nothing of it is kept
here. The distribution lacks the parts that start a broker, and an empty stand-in for them is written next to the tests.
OTTLA_TEST_BOOTSTRAP=host:port names another broker, Apache Kafka for example.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.tools import cache_directory
from tests.scenarios.brokers import BrokerProcess

INDEX = "https://pypi.org/simple"
DOWNLOAD_SECONDS_MAX = 60
RUN_SECONDS_MAX = 600
KAFKA_VERSION = "4.3.0"
"""Whose answers the tests expect."""
PROPERTIES = {
    "node.id": "0",
    "num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
"""What kafka-python gives the brokers that it starts itself."""
MODULES = ["test_admin_integration.py", "test_consumer_integration.py", "test_producer_integration.py"]
NOT_SERVED = {
    "test_create_describe_delete_acls": "ACLs",
    "test_alter_replica_log_dirs": "AlterReplicaLogDirs",
    "test_alter_partition_reassignments": "AlterPartitionReassignments",
    "test_list_partition_reassignments": "ListPartitionReassignments",
}
"""Tests that are left out, and the API that they need."""
STAND_IN = '''"""Stands in for what starts brokers: the one that the tests use runs already."""


class ExternalService:
    def __init__(self, host, port):
        pass


class SpawnedService:
    pass
'''


class NoSuite(Exception):
    """The tests cannot be had here."""


def find_suite() -> Path:
    """The folder that holds kafka-python's `test` folder, fetched at first use, whole or not at all."""
    version = importlib.metadata.version("kafka-python")
    home = cache_directory() / f"kafka-python-{version}"
    if home.exists():
        return home
    try:
        archive = _download(version)
    except (urllib.error.URLError, TimeoutError) as error:
        raise NoSuite(f"the package index does not answer: {error}") from error
    partial = home.with_name(f"{home.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    with tempfile.TemporaryFile() as file:
        file.write(archive)
        file.seek(0)
        with tarfile.open(fileobj=file) as tar:
            members = [member for member in tar if "/test/" in member.name and member.isfile()]
            for member in members:
                member.name = member.name.split("/", 1)[1]
            tar.extractall(partial, members, filter="data")
    (partial / "test" / "__init__.py").touch()
    (partial / "test" / "service.py").write_text(STAND_IN)
    shutil.rmtree(home, ignore_errors=True)
    partial.rename(home)
    return home


def _download(version: str) -> bytes:
    index = os.environ.get("PIP_INDEX_URL", INDEX).rstrip("/") + "/kafka-python/"
    with urllib.request.urlopen(index, timeout=DOWNLOAD_SECONDS_MAX) as page:
        listed = page.read().decode()
    link = re.search(rf'href="([^"]*/kafka_python-{re.escape(version)}\.tar\.gz#sha256=[0-9a-f]+)"', listed)
    if link is None:
        raise NoSuite(f"the package index has no source distribution of kafka-python {version}")
    address, _, digest = urllib.parse.urljoin(index, link[1]).partition("#sha256=")
    with urllib.request.urlopen(address, timeout=DOWNLOAD_SECONDS_MAX) as answer:
        archive: bytes = answer.read()
    if hashlib.sha256(archive).hexdigest() != digest:
        raise NoSuite(f"{address} is not what the package index says it is")
    return archive


@contextmanager
def broker() -> Iterator[str]:
    named = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if named:
        yield named
        return
    with tempfile.TemporaryDirectory() as directory:
        process = BrokerProcess(Path(directory), PROPERTIES)
        process.properties = PROPERTIES | {"advertised.listeners": f"PLAINTEXT://{process.bootstrap_servers}"}
        with process:
            yield process.bootstrap_servers


def run_suite(suite: Path, bootstrap: str, arguments: list[str]) -> int:
    """pytest's exit code."""
    left_out = " and ".join(f"not {name}" for name in NOT_SERVED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:ottla", "-p", "no:cacheprovider", "-W", "ignore"]
    command += ["--rootdir", str(suite), "--timeout", "60", "--tb", "short", "-k", left_out, *arguments]
    command += [f"test/integration/{module}" for module in MODULES]
    settings = {
        "KAFKA_URI": f"kafka://{bootstrap}",
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_ROOT": str(suite),
    }
    return subprocess.run(
        command, cwd=suite, env=os.environ | settings, timeout=RUN_SECONDS_MAX, check=False
    ).returncode


def main() -> int:
    try:
        suite = find_suite()
    except NoSuite as reason:
        print(f"kafka-python's tests were not run: {reason}")
        return 0
    for name, api in NOT_SERVED.items():
        print(f"left out: {name} ({api} is not served)")
    with broker() as bootstrap:
        return run_suite(suite, bootstrap, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
