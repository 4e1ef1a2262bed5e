"""What a node says about the quorum: all of it where it leads, what it knows elsewhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.runtime.quorum_cluster import QuorumCluster, setting, three_nodes, voters


def test_the_leader_knows_everybody_and_the_others_who_votes(tmp_path: Path) -> None:
    async def main() -> None:
        async with three_nodes(tmp_path) as cluster:
            observer = cluster.add(9, {**voters(1, 2, 3), "process.roles": "broker"})
            await observer.start()
            leader = await cluster.wait_for_leader()
            offset = await leader.node.append([setting("a", "1")])
            await _describe(cluster, offset)

    async def _describe(cluster: QuorumCluster, offset: int) -> None:
        leader = await cluster.wait_for_leader()
        await cluster.until(lambda: all(item.log_end_offset > offset for item in leader.node.describe().voters))
        await cluster.until(lambda: [item.replica_id for item in leader.node.describe().observers] == [9])
        described, now_ms = leader.node.describe(), leader.node.world.clock.now_ms()
        assert (described.leader_id, described.leader_epoch) == (leader.id, leader.node.epoch)
        for replica in (*described.voters, *described.observers):
            assert now_ms - 60_000 < replica.last_fetch_timestamp_ms <= now_ms + 1, "by the clock on the wall"
            assert replica.directory_id == cluster.members[replica.replica_id].directory_id
        assert dict(described.endpoints)[2][0].port == 2
        follower = next(member for member in cluster.members.values() if member not in (leader, cluster.members[9]))
        elsewhere = follower.node.describe()
        assert (elsewhere.leader_id, elsewhere.observers) == (leader.id, ())
        ends = {item.replica_id: item.log_end_offset for item in elsewhere.voters}
        assert ends[leader.id] == -1, "only a leader hears from the others"
        assert ends[follower.id] > offset

    asyncio.run(main())
