"""Whatever is answered outlives a loss of power at any moment, and a kill."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.controller.commands import CreateTopics, DeleteTopics, NewTopic, TopicReference
from ottla.runtime.controller import ControllerDriver
from ottla.runtime.producer_ids import ProducerIds
from tests.unit.runtime.forgetful_disk import ForgetfulDisk
from tests.unit.runtime.metadata import Inline, Node, P, T

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "3000", "internal.metadata.log.segment.bytes": "8000"}


class Mortal(Inline):
    """Work that reaches the disk `steps` times; then the power goes, and nothing of the node runs on."""

    def __init__(self, steps: int, power_off: Callable[[], None]) -> None:
        super().__init__()
        self._left = steps
        self._power_off = power_off
        self.dead = asyncio.Event()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self._left -= 1
        if self._left == 0:
            self._power_off()
            self.dead.set()
        if self._left <= 0:
            await asyncio.get_running_loop().create_future()
        return function(*args, **kwargs)


class History:
    """What clients were told. What was asked for and not answered may or may not have happened."""

    def __init__(self) -> None:
        self.created: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.producer_ids: list[int] = []
        self.epochs: list[int] = [0]

    def check(self, topics: set[str]) -> None:
        unsure = {name for name, times in self.asked.items() if times}
        assert self.created - unsure <= topics
        assert topics <= self.created | unsure


async def life(path: Path, disk: ForgetfulDisk, history: History, rng: random.Random) -> None:
    """One life of a node, until the power goes."""
    offload = Mortal(rng.randint(1, 40), lambda: disk.power_off(str(path)))
    work = asyncio.ensure_future(serve(Node(path, SMALL, disk, offload), history, rng))
    death = asyncio.ensure_future(offload.dead.wait())
    done, _ = await asyncio.wait([work, death], return_when=asyncio.FIRST_COMPLETED)
    if work in done:
        work.result()


async def serve(node: Node, history: History, rng: random.Random) -> None:
    """Start, know all that was ever answered, and take commands."""
    await node.quorum.start()
    history.check(set(node.quorum.image.topics))
    assert node.quorum.epoch > history.epochs[-1]
    history.epochs.append(node.quorum.epoch)
    history.created = set(node.quorum.image.topics)
    history.asked.clear()
    controller = node.controller()
    epoch = await node.register(controller, clean_start=False)
    ids = ProducerIds(controller, broker_id=1, broker_epoch=epoch)
    while True:
        # Different topics: the answers to two clients may overtake each other.
        names = (f"t{number}" for number in rng.sample(range(30), rng.randint(1, 4)))
        await asyncio.gather(*(act(controller, ids, history, rng, name) for name in names))


async def act(controller: ControllerDriver, ids: ProducerIds, history: History, rng: random.Random, name: str) -> None:
    if rng.random() < 0.2:
        history.producer_ids.append(await ids.next())
        return
    history.asked[name] += 1
    if rng.random() < 0.7:
        await controller.submit(CreateTopics([NewTopic(name, rng.randint(1, 5))]))
        history.created.add(name)
    else:
        await controller.submit(DeleteTopics([TopicReference(name)]))
        history.created.discard(name)
    history.asked[name] -= 1


@settings(max_examples=10)
@given(seed=st.integers(0, 10**9))
def test_an_answer_outlives_any_loss_of_power(seed: int) -> None:
    rng = random.Random(seed)
    path = Path(tempfile.mkdtemp())
    history, disk = History(), ForgetfulDisk()
    try:
        for _ in range(4):
            asyncio.run(life(path, disk, history, rng))
        assert len(set(history.producer_ids)) == len(history.producer_ids)
    finally:
        shutil.rmtree(path)


VICTIM = """
import asyncio, sys
from pathlib import Path
from ottla.core.controller.commands import CreateTopics, NewTopic
from ottla.runtime.producer_ids import ProducerIds
from tests.unit.runtime.metadata import running

async def main():
    async with running(Path(sys.argv[1])) as (node, controller):
        ids = ProducerIds(controller, broker_id=1, broker_epoch=node.quorum.image.brokers[1].epoch)
        print("known", *sorted(node.quorum.image.topics), flush=True)
        for i in range(10**9):
            if i % 300 == 0:
                name = f"{sys.argv[2]}-{i}"
                await controller.submit(CreateTopics([NewTopic(name)]))
                print("created", name, flush=True)
            print("id", await ids.next(), flush=True)

asyncio.run(main())
"""


def test_a_killed_process_has_forgotten_nothing_it_said(tmp_path: Path) -> None:
    created: set[str] = set()
    producer_ids: list[int] = []
    for attempt in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(tmp_path), f"life{attempt}"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
            env={**os.environ, "PYTHONPATH": "."},
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if not line.endswith("\n"):
                    break  # Cut off by the kill.
                kind, *words = line.split()
                if kind == "known":
                    assert created <= set(words)
                elif kind == "created":
                    created.update(words)
                elif kind == "id":
                    producer_ids.append(int(words[0]))
                if kind == "id" and len(producer_ids) % 1700 == 0:
                    process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert len(producer_ids) >= 3 * 1700
    assert len(set(producer_ids)) == len(producer_ids)
    assert len(created) >= 3
