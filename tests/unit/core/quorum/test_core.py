"""A quorum elects, replicates and recovers; stories of single nodes and small clusters."""

from __future__ import annotations

import pytest

from ottla.core.quorum.voters import Voter
from tests.unit.core.quorum.cluster import Cluster, voter


def test_a_sole_voter_leads_at_once() -> None:
    cluster = Cluster(1, voters=1)
    leader = cluster.wait_for_leader(within_ms=50)
    assert leader.core is not None
    offset = cluster.write(leader)
    cluster.run_until(lambda: leader.core is not None and leader.core.high_watermark > offset, within_ms=50)
    assert leader.core.next_deadline_ms(cluster.now_ms) is None


@pytest.mark.parametrize("voters", [2, 3, 5])
def test_a_new_quorum_is_founded_and_commits(voters: int) -> None:
    cluster = Cluster(2, voters)
    leader = cluster.wait_for_leader(within_ms=1000)
    assert leader.core is not None
    assert leader.core.voters.is_known
    offset = cluster.write(leader)
    cluster.run_until(lambda: all(node.core.high_watermark > offset for node in cluster.nodes.values() if node.core))


def test_no_quorum_is_founded_without_all_voters() -> None:
    cluster = Cluster(3, start=False)
    cluster.nodes[1].start()
    cluster.nodes[2].start()
    cluster.run(20_000)
    assert cluster.leader is None
    assert not cluster.invariants.leaders
    cluster.nodes[3].start()
    cluster.wait_for_leader(within_ms=3000)


def test_a_killed_leader_is_replaced_within_a_moment() -> None:
    for seed in range(20):
        cluster = Cluster(seed)
        first = cluster.wait_for_leader()
        cluster.run(3000)
        first.crash()
        killed_ms = cluster.now_ms
        cluster.wait_for_leader()
        assert cluster.now_ms - killed_ms < 1000, seed
        first.start()
        cluster.run(2000)
        assert len(cluster.invariants.leaders) == 2, "a restart of a voter must not end an epoch"


def test_a_leader_that_resigns_is_followed_at_once() -> None:
    cluster = Cluster(4)
    first = cluster.wait_for_leader()
    cluster.run(1000)
    assert first.core is not None
    first.core.resign(cluster.now_ms)
    first.pump()
    cluster.run_until(lambda: cluster.leader is not None, within_ms=100)
    assert cluster.leader is not first


def test_a_node_that_was_cut_off_does_not_end_an_epoch() -> None:
    cluster = Cluster(5)
    leader = cluster.wait_for_leader()
    cluster.run(1000)
    assert leader.core is not None
    epoch = leader.core.epoch
    other = next(node for node in cluster.nodes.values() if node is not leader)
    cluster.isolate(other.id)
    cluster.run(20_000)
    cluster.cut.clear()
    cluster.run(5000)
    assert leader.is_leader
    assert leader.core.epoch == epoch
    offset = cluster.write(leader)
    cluster.run_until(lambda: other.core is not None and other.core.high_watermark > offset)


def test_a_leader_that_hears_no_majority_lets_go_and_its_tail_is_cut() -> None:
    cluster = Cluster(6)
    old = cluster.wait_for_leader()
    cluster.run(1000)
    cluster.isolate(old.id)
    lost = cluster.write(old)
    cluster.run_until(lambda: not old.is_leader, within_ms=3500)
    new = cluster.wait_for_leader(within_ms=5000)
    assert new is not old
    kept = cluster.write(new)
    cluster.cut.clear()
    cluster.run_until(lambda: old.core is not None and old.core.high_watermark > kept)
    assert old.log.whole() == new.log.whole()
    assert lost < old.log.end_offset


def test_a_replica_that_is_far_behind_gets_a_snapshot() -> None:
    cluster = Cluster(7)
    leader = cluster.wait_for_leader()
    behind = next(node for node in cluster.nodes.values() if node is not leader)
    behind.crash()
    for _ in range(30):
        cluster.write(leader)
    cluster.run(1000)
    leader.take_snapshot()
    assert leader.log.start > 10
    behind.start()
    cluster.run_until(lambda: behind.core is not None and behind.log.end_offset == leader.log.end_offset)
    assert behind.log.snapshot == leader.log.snapshot
    assert behind.core is not None
    assert leader.core is not None
    assert behind.core.voters == leader.core.voters
    assert behind.core.is_voter


def test_a_voter_on_an_empty_disk_is_no_voter_until_it_is_added() -> None:
    cluster = Cluster(8)
    leader = cluster.wait_for_leader()
    one, two = (node for node in cluster.nodes.values() if node is not leader)
    cluster.run(500)
    one.crash()
    offset = cluster.write(leader)
    cluster.run_until(lambda: leader.core is not None and leader.core.high_watermark > offset)
    # Two of three have it. One of them goes, and the third comes back empty: nobody may lead without the second.
    old = one.key
    one.wipe()
    leader.crash()
    one.start()
    cluster.run(20_000)
    assert cluster.leader is None
    leader.start()
    new = cluster.wait_for_leader()
    cluster.run_until(lambda: one.log.end_offset == new.log.end_offset)
    assert one.core is not None
    assert not one.core.is_voter
    cluster.run_until(lambda: cluster.change_voters(lambda core: core.remove_voter(old)))
    added = voter(one)
    cluster.run_until(lambda: cluster.change_voters(lambda core: core.add_voter(added, cluster.now_ms)))
    cluster.run_until(lambda: one.core is not None and one.core.is_voter)
    two.crash()
    last = cluster.write(cluster.wait_for_leader())
    cluster.run_until(lambda: one.core is not None and one.core.high_watermark > last)


def test_a_node_wiped_while_the_quorum_is_founded_does_no_harm() -> None:
    for seed in range(30):
        cluster = Cluster(seed)
        cluster.run(cluster.rng.randint(1, 200))
        victim = cluster.nodes[cluster.rng.randint(1, 3)]
        victim.crash()
        victim.wipe()
        victim.start()
        cluster.wait_for_leader()


def test_voters_come_and_go_and_a_removed_leader_lets_go() -> None:
    cluster = Cluster(9, voters=1)
    cluster.wait_for_leader()
    for node_id in (2, 3):
        added = voter(cluster.add_node(node_id))

        def add(added: Voter = added) -> bool:
            return cluster.change_voters(lambda core: core.add_voter(added, cluster.now_ms))

        cluster.run_until(add)
    cluster.run(1000)
    first = cluster.nodes[1]
    assert first.core is not None
    assert first.core.voters.ids == (1, 2, 3)
    assert cluster.change_voters(lambda core: core.remove_voter(first.key))
    cluster.run_until(lambda: cluster.leader not in (None, first), within_ms=2000)
    assert cluster.leader is not None
    offset = cluster.write(cluster.leader)
    cluster.run_until(lambda: first.core is not None and first.core.high_watermark > offset)
    assert not first.core.is_voter


def test_an_observer_follows_and_never_counts() -> None:
    cluster = Cluster(10)
    leader = cluster.wait_for_leader()
    observer = cluster.add_node(9, may_vote=False)
    offset = cluster.write(leader)
    cluster.run_until(lambda: observer.core is not None and observer.core.high_watermark > offset)
    for node in cluster.nodes.values():
        if node not in (leader, observer):
            node.crash()
    cluster.write(leader)
    cluster.run_until(lambda: not leader.is_leader, within_ms=4000)
    cluster.run(10_000)
    assert cluster.leader is None
