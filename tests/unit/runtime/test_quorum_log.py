"""The file with the epoch and the vote: whatever writes it, and however often at once, the newest vote stays in it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.core.quorum.effects import ElectionState, OffsetAndEpoch
from ottla.core.quorum.voters import ReplicaKey
from ottla.log.disk import RealDisk
from ottla.log.handles import OpenFiles
from ottla.model.configs.resolve import BrokerConfig
from ottla.runtime.metadata_log import load_metadata_log
from ottla.runtime.metadata_snapshot import SnapshotId
from ottla.runtime.quorum_log import QuorumLog
from ottla.runtime.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from ottla.runtime.world import World
from tests.unit.runtime.metadata import CLUSTER_ID, FixedClock

VOTE = ReplicaKey(2, UUID(int=2))


class Threads:
    """Real threads. The first call waits inside its thread until a test lets it go on."""

    def __init__(self) -> None:
        self.calls = 0
        self.first = threading.Event()
        self.first.set()

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return await asyncio.to_thread(self._run, self.calls, function, args, kwargs)

    def _run(self, number: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        if number == 1:
            self.first.wait(10)
        return function(*args, **kwargs)

    def close(self) -> None:
        pass


def open_log(path: Path, offload: Any) -> QuorumLog:
    world = World(clock=FixedClock(), offload=offload, disk=RealDisk(), rng=random.Random(1))
    config = BrokerConfig.from_properties({"log.dirs": str(path)})
    loaded = load_metadata_log(world.disk, OpenFiles(world.disk), str(path / "log"), config, CLUSTER_ID, 0)
    return QuorumLog(world, str(path / "log"), loaded)


def stored(path: Path) -> QuorumState:
    found = read_quorum_state(RealDisk(), str(path / "log/quorum-state"))
    assert found is not None
    return found


def test_a_slow_write_does_not_put_an_older_vote_in_place_of_a_newer_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        offload = Threads()
        log = open_log(tmp_path, offload)
        offload.first.clear()
        slow = asyncio.create_task(log.store_again())  # For a snapshot, say; it began before there was a vote.
        await asyncio.sleep(0)
        assert log.is_storing
        vote = asyncio.create_task(log.store(ElectionState(5, VOTE)))
        await asyncio.sleep(0.01)
        assert not vote.done()
        offload.first.set()
        await asyncio.gather(slow, vote)
        assert not log.is_storing

    asyncio.run(scenario())
    assert (stored(tmp_path).leader_epoch, stored(tmp_path).voted_id) == (5, 2)


def test_many_writes_at_once_leave_the_newest_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = open_log(tmp_path, Threads())
        for epoch in range(1, 30):
            await asyncio.gather(log.store_again(), log.store(ElectionState(epoch, VOTE)), log.lower_synced_offset(0))
            assert (stored(tmp_path).leader_epoch, stored(tmp_path).voted_id) == (epoch, 2)

    asyncio.run(scenario())


def test_a_vote_outlives_a_life_in_which_nothing_happened(tmp_path: Path) -> None:
    async def live() -> None:
        log = open_log(tmp_path, Threads())
        assert log.state == ElectionState(5, VOTE)
        await log.store_again()

    (tmp_path / "log").mkdir()
    state = QuorumState(leader_epoch=5, voted_id=2, voted_directory_id=VOTE.directory_id)
    write_quorum_state(RealDisk(), str(tmp_path / "log/quorum-state"), state)
    for _ in range(2):
        asyncio.run(live())
    assert (stored(tmp_path).voted_id, stored(tmp_path).voted_directory_id) == VOTE


def test_the_synced_offset_is_lowered_before_a_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = open_log(tmp_path, Threads())
        await log.lower_synced_offset(0)
        assert stored(tmp_path).synced_offset == 0
        assert log.cut(0, 0) == []
        log.keep()

    asyncio.run(scenario())


def test_an_empty_log_has_no_epoch_and_a_snapshot_gives_it_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        log = open_log(tmp_path, Threads())
        assert (log.start_offset, log.end_offset, log.last_epoch, log.start_snapshot) == (0, 0, 0, None)
        assert log.end_of_epoch(7) == OffsetAndEpoch(0, 0)
        log.restart(SnapshotId(10, 3), 0)
        assert (log.start_offset, log.end_offset, log.last_epoch) == (10, 10, 3)
        assert log.start_snapshot == log.latest_snapshot == OffsetAndEpoch(10, 3)
        assert log.end_of_epoch(2) == OffsetAndEpoch(10, 3)

    asyncio.run(scenario())
