"""A random life of a quorum: everything that can go wrong does, and then it must work again."""

from __future__ import annotations

from ottla.core.quorum.voters import ReplicaKey
from tests.unit.core.quorum.cluster import Cluster, Node, voter

SPARE_IDS = (6, 7)
LIVENESS_MS = 60_000


class Story:
    """One seed: faults in any order, with the invariants checked after each event, then peace."""

    def __init__(self, seed: int, *, acts: int = 150) -> None:
        self.cluster = Cluster(seed)
        self.rng = self.cluster.rng
        self.rng.shuffle(order := [3, 5])
        if self.rng.random() < 0.3:
            self.cluster = Cluster(seed, voters=order[0])
            self.rng = self.cluster.rng
        self.acts = acts
        self.wiped: list[ReplicaKey] = []

    def run(self) -> None:
        moves = [
            (30, self.write),
            (10, self.crash),
            (14, self.restart),
            (5, self.cut),
            (6, self.heal),
            (4, self.snapshot),
            (4, self.resign),
            (4, self.campaign),
            (3, self.wipe),
            (6, self.change_voters),
            (3, self.weather),
        ]
        weights = [weight for weight, _ in moves]
        for _ in range(self.acts):
            [(_, move)] = self.rng.choices(moves, weights)
            move()
            self.cluster.run(self.rng.choice((1, 10, 100, 400, 3000)))
        self.peace()

    def peace(self) -> None:
        """With every node back and no fault any more, the quorum serves within a bounded time."""
        cluster = self.cluster
        cluster.cut.clear()
        cluster.loss, cluster.delay_ms_max, cluster.disk_ms_max = 0.0, 3, 3
        for node in cluster.nodes.values():
            if node.core is None:
                node.start()
        leader = cluster.wait_for_leader(LIVENESS_MS)
        cluster.run(5000)
        leader = cluster.wait_for_leader(LIVENESS_MS)
        offset = cluster.write(leader)
        cluster.run_until(
            lambda: all(node.core and node.core.high_watermark > offset for node in cluster.nodes.values()), LIVENESS_MS
        )

    # -- what happens

    def some(self, *, up: bool) -> Node | None:
        found = [node for node in self.cluster.nodes.values() if (node.core is not None) is up]
        return self.rng.choice(found) if found else None

    def write(self) -> None:
        for _ in range(self.rng.randint(1, 8)):
            nodes = self.cluster.nodes.values()
            leaders = [node for node in nodes if node.core is not None and node.core.is_established]
            if leaders:
                self.cluster.write(self.rng.choice(leaders))

    def crash(self) -> None:
        if (node := self.some(up=True)) is not None:
            node.crash()

    def restart(self) -> None:
        if (node := self.some(up=False)) is not None:
            node.start()

    def cut(self) -> None:
        ids = list(self.cluster.nodes)
        if self.rng.random() < 0.5:
            self.cluster.isolate(*self.rng.sample(ids, self.rng.randint(1, 2)))
        else:
            self.cluster.cut.add((self.rng.choice(ids), self.rng.choice(ids)))

    def heal(self) -> None:
        self.cluster.cut.clear()

    def weather(self) -> None:
        self.cluster.loss = self.rng.choice((0.0, 0.0, 0.1, 0.3))
        self.cluster.delay_ms_max = self.rng.choice((3, 3, 50, 700))
        self.cluster.disk_ms_max = self.rng.choice((3, 3, 100))

    def snapshot(self) -> None:
        if (node := self.some(up=True)) is not None:
            node.take_snapshot()

    def resign(self) -> None:
        if (leader := self.cluster.leader) is not None and leader.core is not None:
            leader.core.resign(self.cluster.now_ms)
            leader.pump()

    def campaign(self) -> None:
        """Two voters ask for votes at the same moment, without asking first whether they would get them."""
        voters = [node for node in self.cluster.nodes.values() if node.core is not None and node.core.is_voter]
        for node in self.rng.sample(voters, min(2, len(voters))):
            assert node.core is not None
            if not node.is_leader:
                node.core._become_candidate(self.cluster.now_ms)
                node.pump()

    def missing(self) -> list[ReplicaKey]:
        """Voters of some node's set whose disk is gone."""
        sets = [node.core.voters for node in self.cluster.nodes.values() if node.core is not None]
        return [key for key in self.wiped if any(key in [voter.key for voter in found.voters] for found in sets)]

    def wipe(self) -> None:
        """One disk at a time, and only where the others can do without it."""
        sets = [node.core.voters for node in self.cluster.nodes.values() if node.core is not None]
        if any(node.core is None for node in self.cluster.nodes.values()) or self.missing():
            return
        node = self.rng.choice(list(self.cluster.nodes.values()))
        if node.is_leader or not sets or any(len(found.voters) < 3 for found in sets):
            return
        node.crash()
        self.wiped.append(node.key)
        node.wipe()
        node.start()

    def change_voters(self) -> None:
        cluster, leader = self.cluster, self.cluster.leader
        if leader is None or leader.core is None:
            return
        voters = leader.core.voters
        gone = self.missing()
        if gone:
            cluster.change_voters(lambda core: core.remove_voter(gone[0]))
        elif len(voters.voters) > 3 and self.rng.random() < 0.5:
            key = self.rng.choice(voters.voters).key
            cluster.change_voters(lambda core: core.remove_voter(key))
        else:
            self.add_voter()

    def add_voter(self) -> None:
        cluster, leader = self.cluster, self.cluster.leader
        for node_id in SPARE_IDS:
            if node_id not in cluster.nodes and self.rng.random() < 0.3:
                cluster.add_node(node_id)
        assert leader is not None
        assert leader.core is not None
        ids = leader.core.voters.ids
        spare = [node for node in cluster.nodes.values() if node.id not in ids]
        if spare:
            added = voter(self.rng.choice(spare))
            cluster.change_voters(lambda core: core.add_voter(added, cluster.now_ms))
