"""Every followed partition has one fetcher: its leader's."""

from __future__ import annotations

from typing import Any

from ottla.runtime.replica_fetchers import ReplicaFetchers
from tests.unit.runtime.leader_stub import LEADER, OWN, Following, LeaderStub
from tests.unit.runtime.test_replica_fetcher import run, write


class PeersStub:
    def __init__(self, leader: LeaderStub) -> None:
        self.leader = leader
        self.lanes: list[tuple[int, str]] = []

    def to_broker(self, broker_id: int, lane: str) -> Any:
        self.lanes.append((broker_id, lane))
        return self.leader


def test_partitions_are_fetched_from_their_leader_until_that_is_another() -> None:
    async def scenario() -> None:
        leader = LeaderStub(4)
        following = Following(leader, {"num.replica.fetchers": "2"})
        peers = PeersStub(leader)
        fetchers = ReplicaFetchers(peers, following.context)  # type: ignore[arg-type]
        following.host(5)
        assert peers.lanes == []  # Not before it is told to.
        write(leader.logs[1], 3)
        fetchers.start()
        assert sorted(peers.lanes) == [(LEADER, "replica-0"), (LEADER, "replica-1")]
        assert len(fetchers) == 4
        # Nobody leads, then this broker does, then the leader again in a new epoch.
        following.host(6, leader=-1)
        assert len(fetchers) == 0
        following.host(7, leader=OWN)
        assert len(fetchers) == 0
        leader.epoch = 8
        following.host(8)
        assert len(fetchers) == 4
        await following.until(lambda: following.log(1).log_end_offset == 6)
        assert fetchers.bytes_total > 0
        following.table.drop(following.partition().topic_id)
        assert len(fetchers) == 0
        await fetchers.close()

    run(scenario)


def test_another_number_of_fetchers_moves_partitions() -> None:
    async def scenario() -> None:
        leader = LeaderStub(4)
        following = Following(leader)
        peers = PeersStub(leader)
        fetchers = ReplicaFetchers(peers, following.context)  # type: ignore[arg-type]
        fetchers.start()
        assert peers.lanes == [(LEADER, "replica-0")]
        following.config = following.config.with_dynamic(
            {"num.replica.fetchers": "2", "follower.replication.throttled.rate": "1"}
        )
        fetchers.config_changed()
        assert len(peers.lanes) == 2
        assert len(fetchers) == 4
        fetchers.quota.record(10, 0)
        assert fetchers.quota.wait_ms(0) > 0
        await fetchers.close()

    run(scenario)
