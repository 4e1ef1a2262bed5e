"""Cores are pure, the world is handed in, and nothing blocks the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

from tests.tidy.calls import check_blocking, check_pure, check_world
from tests.tidy.sources import Source, Violation, report, shipped_sources

Rule: TypeAlias = Callable[[Source], Iterator[Violation]]

CORE = "src/ottla/core/controller/controller.py"
LOG = "src/ottla/log/segment.py"
LOOP = "src/ottla/runtime/partitions.py"


@pytest.mark.parametrize("rule", [check_pure, check_world, check_blocking])
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    found = [violation for source in shipped_sources() for violation in rule(source)]
    assert not found, report(found)


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (check_pure, CORE, "import asyncio"),
        (check_pure, CORE, "import os.path"),
        (check_pure, CORE, "from pathlib import Path"),
        (check_pure, CORE, "from concurrent.futures import ThreadPoolExecutor"),
        (check_pure, CORE, "def load(name):\n    return open(name)"),
        (check_world, CORE, "from uuid import uuid4\nnew = uuid4()"),
        (check_world, CORE, "import uuid\nnew = uuid.uuid4"),
        (check_world, LOG, "import time\nnow = time.time()"),
        (check_world, LOG, "import time as t\nt.sleep(1)"),
        (check_world, LOG, "from time import monotonic\nnow = monotonic()"),
        (check_world, LOG, "import random\nrandom.random()"),
        (check_world, LOG, "import os\nos.urandom(8)"),
        (check_world, LOG, "import threading\nlock = threading.Lock()"),
        (check_world, LOG, "from datetime import datetime\nnow = datetime.now()"),
        (check_world, "src/ottla/api/fetch.py", "import secrets\nsecrets.token_bytes(8)"),
        (check_blocking, LOOP, "import os\ndef flush(fd):\n    os.fsync(fd)"),
        (check_blocking, LOOP, "def load(name):\n    with open(name) as f:\n        return f"),
        (check_blocking, LOOP, "async def drop(disk, name):\n    disk.remove_tree(name)"),
        (check_blocking, LOOP, "from subprocess import run\nrun(['ls'])"),
        (check_blocking, "src/ottla/api/fetch.py", "import requests\nrequests.get('x')"),
        (check_blocking, "src/ottla/server/listener.py", "from time import sleep\nsleep(1)"),
        (check_blocking, LOOP, "# runs in a thread\nx = 1\n\ndef flush(file):\n    file.sync()"),
    ],
)
def test_a_forbidden_name_is_found(rule: Rule, path: str, code: str) -> None:
    assert list(rule(Source.parse(path, code)))


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (check_pure, CORE, "from uuid import UUID\nimport struct"),
        (check_pure, LOG, "import os\nfile = open('x')"),
        (check_world, LOG, "from uuid import UUID\nzero = UUID(int=0)"),
        (check_world, LOG, "import random\ndef pick(rng: random.Random) -> float:\n    return rng.random()"),
        (check_world, LOG, "def wait(time):\n    return time.time"),
        (check_world, "src/ottla/runtime/world.py", "import time\nnow = time.time()"),
        (check_world, "src/ottla/cli/topic.py", "import time\ntime.sleep(1)"),
        (check_blocking, LOG, "import os\nos.fsync(3)"),
        (check_blocking, LOOP, "# runs in a thread\ndef flush(file):\n    file.sync()"),
        (check_blocking, LOOP, "def flush(file):  # runs in a thread\n    file.sync()"),
        (check_blocking, LOOP, 'def flush(file):\n    """Sync. runs in a thread"""\n    file.sync()'),
        (check_blocking, LOOP, "@cache\ndef flush(\n    file,\n):  # runs in a thread\n    file.sync()"),
        (check_blocking, LOOP, "if __name__ == '__main__':\n    open('x')"),
        (check_blocking, LOOP, "def load(disk):  # runs before serving\n    return open('x')"),
        (
            check_blocking,
            LOOP,
            "async def drop(world, name):\n    await world.offload.run(world.disk.remove_tree, name)",
        ),
        (check_blocking, LOOP, "def load(logs):\n    return logs.open('x')"),
    ],
)
def test_an_allowed_name_passes(rule: Rule, path: str, code: str) -> None:
    found = list(rule(Source.parse(path, code)))
    assert not found, report(found)
