"""The driver keeps the core's word: nothing leaves before it is on disk, and a disk that fails ends it for good."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ottla.core.controller.records import BeginTransactionRecord, FeatureLevelRecord
from ottla.core.quorum.effects import ElectionState
from ottla.model.errors import ApiError, ErrorCode
from tests.unit.runtime.quorum_cluster import QuorumCluster, setting, settings_of, three_nodes, voters


def test_nothing_is_sent_before_the_vote_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        cluster = QuorumCluster(tmp_path)
        members = [cluster.add(node_id, voters(1, 2)) for node_id in (1, 2)]
        await members[1].start()
        node = await members[0].start()
        may_store = asyncio.Event()
        whole = type(node.log).store

        async def slow(log: object, state: ElectionState) -> None:
            await may_store.wait()
            await whole(node.log, state)

        monkeypatch.setattr(type(node.log), "store", slow)
        await cluster.until(lambda: node.core.epoch > 0 or members[1].node.core.epoch > 0)
        assert cluster.leader is None
        assert not node.is_leader
        may_store.set()
        await cluster.wait_for_leader()
        for member in members:
            await member.stop()

    asyncio.run(main())


def test_a_disk_that_fails_ends_it_and_everybody_who_waits_hears_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            leader = await cluster.wait_for_leader()

            async def broken() -> None:
                raise OSError("I/O error")

            monkeypatch.setattr(type(leader.node.log), "bring_to_disk", lambda log: broken())
            written = leader.node.write([setting("a", "1")])
            with pytest.raises(ApiError, match="failed") as refused:
                await written
            assert refused.value.code is ErrorCode.NOT_CONTROLLER
            assert "I/O error" in {str(error) for error in leader.failures}
            assert not leader.node.is_leader
            with pytest.raises(ApiError, match="failed"):
                leader.node.write([setting("b", "2")])
            async with asyncio.timeout(1):
                with pytest.raises(ApiError, match="failed"):
                    await leader.node.state_stored()
            monkeypatch.undo()
            leader.is_up = False
            await leader.node.close()

    asyncio.run(main())


def test_writers_hear_when_the_lead_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            leader = await cluster.wait_for_leader()
            cluster.cut.add(leader.id)
            written = leader.node.write([setting("a", "1")])
            with pytest.raises(ApiError) as lost:
                await written
            assert lost.value.code is ErrorCode.NOT_CONTROLLER
            assert not leader.node.is_leader
            cluster.cut.clear()

    asyncio.run(main())


def test_a_log_that_another_controller_left_in_a_transaction_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = QuorumCluster(tmp_path)
        member = cluster.add(1, {})
        node = await member.start()
        levels = dict(node.image.features)
        await node.append([BeginTransactionRecord(), setting("a", "1")])
        assert settings_of(node) == {}
        await member.stop()
        node = await member.start()
        assert (node.is_leader, settings_of(node), dict(node.image.features)) == (True, {}, levels)
        await node.append([setting("b", "2"), FeatureLevelRecord(name="share.version", feature_level=1)])
        assert settings_of(node) == {"b": "2"}
        await member.stop()
        node = await member.start()
        assert (settings_of(node), node.image.features["share.version"]) == ({"b": "2"}, 0)
        await member.stop()

    asyncio.run(main())


def test_a_listener_may_write_as_soon_as_it_hears_that_this_node_leads(tmp_path: Path) -> None:
    async def main() -> None:
        cluster = QuorumCluster(tmp_path)
        member = cluster.add(1, {})
        heard: list[asyncio.Future[int]] = []
        node = await member.start()
        assert (node.leader_id, node.is_leader, node.is_alone) == (1, True, True)
        node.subscribe_leadership(lambda: heard.append(node.write([setting("a", "1")])) if node.is_leader else None)
        for listener in node._leadership_listeners:
            listener()
        assert await heard[0] == node.image.offset
        await member.stop()

    asyncio.run(main())
