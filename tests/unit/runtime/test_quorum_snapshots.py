"""Snapshots: taken when the log has grown, kept two at a time, and a damaged one from elsewhere is never taken over."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.core.quorum.effects import FetchSnapshot, OffsetAndEpoch, Position
from ottla.model.errors import CorruptLogError
from ottla.runtime.network import PeerError
from ottla.runtime.quorum_snapshots import FETCHED_SUFFIX, KEPT
from tests.unit.runtime.quorum_cluster import Member, QuorumCluster, setting, settings_of, three_nodes

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "2000", "internal.metadata.log.segment.bytes": "4000"}


async def grown(cluster: QuorumCluster) -> tuple[Member, Member]:
    """A leader with snapshots, and a follower."""
    leader = await cluster.wait_for_leader()
    for number in range(100):
        await leader.node.append([setting(f"key{number}", "x" * 50)])
    await cluster.until(lambda: leader.node.log.start_offset > 0 and not leader.node.snapshots.is_busy)
    return leader, next(member for member in cluster.members.values() if member is not leader)


def names_in(directory: str) -> list[str]:
    return sorted(path.name for path in Path(directory).iterdir())


def effect_of(leader: Member, snapshot: OffsetAndEpoch) -> FetchSnapshot:
    return FetchSnapshot(1, leader.node.epoch, Position(leader.id, leader.name, leader.id), snapshot)


def test_the_log_starts_at_the_older_of_two_snapshots(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path, SMALL) as cluster:
            leader, _ = await grown(cluster)
            log = leader.node.log
            assert len(log.snapshots) == KEPT
            assert log.start_offset == log.snapshots[-1].end_offset
            files = [name for name in names_in(log.directory) if name.endswith(".checkpoint")]
            assert files == sorted(snapshot.file_name for snapshot in log.snapshots)

    asyncio.run(main())


def test_a_snapshot_that_is_damaged_on_its_way_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path, SMALL) as cluster:
            leader, follower = await grown(cluster)
            snapshot = leader.node.log.snapshots[0]
            end = OffsetAndEpoch(snapshot.end_offset + 10_000, snapshot.epoch)  # As if it were far ahead.
            content = (Path(leader.node.log.directory) / snapshot.file_name).read_bytes()
            damaged = content[:-20] + b"\x00" * 20

            async def part(effect: FetchSnapshot, position: int, *_: object) -> tuple[int, bytes]:
                return len(damaged), damaged[position:]

            monkeypatch.setattr(type(follower.node.peers), "snapshot_part", staticmethod(part))
            with pytest.raises(CorruptLogError):
                await follower.node.snapshots.fetch(effect_of(leader, end))
            names = names_in(follower.node.log.directory)
            assert not [name for name in names if name.startswith(f"{end.offset:020d}") and "fetched" not in name]
            assert len([name for name in names if name.endswith(FETCHED_SUFFIX)]) == 1
            later = OffsetAndEpoch(end.offset + 1, end.epoch)
            with pytest.raises(CorruptLogError):
                await follower.node.snapshots.fetch(effect_of(leader, later))
            left = [name for name in names_in(follower.node.log.directory) if name.endswith(FETCHED_SUFFIX)]
            assert len(left) == 1, "the first one is gone"
            before = settings_of(follower.node)
            await follower.stop()
            await follower.start()
            await cluster.until(lambda: settings_of(follower.node) == before)

    asyncio.run(main())


def test_one_that_ends_too_early_or_is_not_needed_any_more_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path, SMALL) as cluster:
            leader, follower = await grown(cluster)
            await cluster.until(lambda: settings_of(follower.node) == settings_of(leader.node))
            known = OffsetAndEpoch(*leader.node.log.snapshots[0])
            with pytest.raises(PeerError):
                await follower.node.snapshots.fetch(effect_of(leader, known))
            assert settings_of(follower.node) == settings_of(leader.node)

            async def nothing(*_: object) -> tuple[int, bytes]:
                return 100, b""

            monkeypatch.setattr(type(follower.node.peers), "snapshot_part", staticmethod(nothing))
            with pytest.raises(PeerError):
                await follower.node.snapshots.fetch(effect_of(leader, OffsetAndEpoch(10**6, 1)))

    asyncio.run(main())
