"""A quorum of several nodes: what is committed is on all of them, whoever is killed, cut off or wiped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ottla.core.controller.image import ImageDelta, MetadataImage
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.runtime.quorum_cluster import (
    CLUSTER_ID,
    QuorumCluster,
    setting,
    settings_of,
    three_nodes,
    voters,
)

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "2000", "internal.metadata.log.segment.bytes": "4000"}


def run(
    scenario: Callable[[QuorumCluster], Awaitable[None]], path: Path, properties: dict[str, str] | None = None
) -> None:
    async def main() -> None:
        async with three_nodes(path, properties) as cluster:
            await scenario(cluster)
            assert not [member.failures for member in cluster.members.values() if member.failures]

    asyncio.run(main())


async def all_have(cluster: QuorumCluster, name: str, value: str) -> None:
    up = [member for member in cluster.members.values() if member.is_up]
    await cluster.until(lambda: all(settings_of(member.node).get(name) == value for member in up))


def test_three_nodes_found_a_quorum_and_agree(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        offset = await leader.node.append([setting("a", "1")])
        assert leader.node.image.offset >= offset
        await all_have(cluster, "a", "1")
        described = leader.node.describe()
        assert [voter.replica_id for voter in described.voters] == [1, 2, 3]
        assert [voter.directory_id for voter in described.voters] == [
            member.directory_id for member in cluster.members.values()
        ]
        for member in cluster.members.values():
            assert member.node.leader_id == leader.id
            assert member.node.epoch == leader.node.epoch
            assert member.node.address_of_leader() == (leader.name, leader.id)
            stored = json.loads((member.path / "__cluster_metadata-0/quorum-state").read_text())
            assert (stored["leaderEpoch"], stored["votedId"]) == (leader.node.epoch, leader.id)

    run(scenario, tmp_path)


def test_only_the_leader_writes(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        for member in cluster.members.values():
            if member is not leader:
                with pytest.raises(ApiError) as refused:
                    member.node.write([setting("a", "1")])
                assert refused.value.code is ErrorCode.NOT_CONTROLLER

    run(scenario, tmp_path)


def test_a_killed_leader_is_replaced_and_comes_back(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        first = await cluster.wait_for_leader()
        await first.node.append([setting("a", "1")])
        await first.kill()
        second = await cluster.wait_for_leader(other_than=first)
        assert settings_of(second.node) == {"a": "1"}
        await second.node.append([setting("b", "2")])
        await first.start()
        await all_have(cluster, "b", "2")
        assert second.node.is_leader

    run(scenario, tmp_path)


def test_what_a_lonely_leader_wrote_is_refused_and_cut_off(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        old = await cluster.wait_for_leader()
        await old.node.append([setting("a", "1")])
        await all_have(cluster, "a", "1")
        cluster.cut.add(old.id)
        lost = old.node.write([setting("a", "lost")])
        with pytest.raises(ApiError) as refused:
            await lost
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        new = await cluster.wait_for_leader(other_than=old)
        await new.node.append([setting("b", "2")])
        cluster.cut.clear()
        await all_have(cluster, "b", "2")
        assert settings_of(old.node) == {"a": "1", "b": "2"}
        await old.stop()
        await old.start()
        await new.node.append([setting("c", "3")])
        await all_have(cluster, "c", "3")
        assert settings_of(old.node) == {"a": "1", "b": "2", "c": "3"}

    run(scenario, tmp_path)


def test_a_planned_stop_hands_over(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        first = await cluster.wait_for_leader()
        changes: list[tuple[int, bool]] = []
        first.node.subscribe_leadership(lambda: changes.append((first.node.leader_id, first.node.is_leader)))
        await first.node.resign()
        assert changes[0] == (-1, False)
        assert first.node.leader_id not in (-1, first.id)
        await first.stop()

    run(scenario, tmp_path)


def test_a_node_that_is_far_behind_takes_a_snapshot(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        behind = next(member for member in cluster.members.values() if member is not leader)
        await leader.node.append([setting("gone", "1")])
        await all_have(cluster, "gone", "1")
        await behind.kill()
        await leader.node.append([setting("gone", None)])  # type: ignore[arg-type]
        for number in range(100):
            await leader.node.append([setting(f"key{number}", "x" * 50)])
        await cluster.until(lambda: leader.node.log.start_offset > 50)
        seen: list[ImageDelta] = []
        starting = behind.start()
        await starting

        def follow(image: MetadataImage, delta: ImageDelta) -> None:
            seen.append(delta)

        behind.node.subscribe(follow)
        await leader.node.append([setting("last", "1")])
        await all_have(cluster, "last", "1")
        assert settings_of(behind.node) == settings_of(leader.node)
        assert behind.node.core.is_voter
        assert seen
        await behind.stop()
        await behind.start()
        await cluster.until(lambda: settings_of(behind.node) == settings_of(leader.node))

    run(scenario, tmp_path, SMALL)


def test_a_wiped_voter_joins_again_by_itself(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        await leader.node.append([setting("a", "1")])
        wiped = next(member for member in cluster.members.values() if member is not leader)
        await wiped.kill()
        wiped.wipe()
        await wiped.start()
        assert not settings_of(wiped.node)
        await cluster.until(
            lambda: (
                [voter.directory_id for voter in leader.node.describe().voters]
                == [member.directory_id for member in cluster.members.values()]
            )
        )
        await leader.node.append([setting("b", "2")])
        await all_have(cluster, "b", "2")

    run(scenario, tmp_path, {"controller.quorum.auto.join.enable": "true"})


def test_a_single_node_grows_to_three_and_shrinks(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = QuorumCluster(tmp_path)
        first = cluster.add(1, {"cluster.id": CLUSTER_ID})
        await first.start()
        assert first.node.is_leader
        await first.node.append([setting("a", "1")])
        for node_id in (2, 3):
            joining = {
                "controller.quorum.bootstrap.servers": "node-1:1",
                "controller.quorum.auto.join.enable": "true",
                "cluster.id": CLUSTER_ID,
            }
            await cluster.add(node_id, joining).start()
        cores = [member.node.core for member in cluster.members.values()]
        # Committed, as all of them know: what only the first one has would go with it.
        await cluster.until(lambda: all(core.voters.ids == (1, 2, 3) for core in cores))
        await cluster.until(lambda: all(core.high_watermark > core.history.last_offset for core in cores))
        await all_have(cluster, "a", "1")
        await first.kill()
        second = await cluster.wait_for_leader(other_than=first)
        await second.node.append([setting("b", "2")])
        for member in cluster.members.values():
            if member.is_up:
                await member.stop()

    asyncio.run(main())


def test_an_observer_follows(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        observer = cluster.add(9, {**voters(1, 2, 3), "process.roles": "broker"})
        await observer.start()
        leader = await cluster.wait_for_leader()
        await leader.node.append([setting("a", "1")])
        await all_have(cluster, "a", "1")
        assert not observer.node.core.is_voter
        await cluster.until(lambda: [item.replica_id for item in leader.node.describe().observers] == [9])

    run(scenario, tmp_path)
