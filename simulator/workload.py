"""The clients of a run: who they are, when they stop, and who still waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulator.clients.changes import Operator
from simulator.clients.classic_member import ClassicMember
from simulator.clients.cluster import ClusterClient
from simulator.clients.group_member import GroupMember
from simulator.clients.producer import IdempotentProducer
from simulator.clients.reader import Reader
from simulator.clients.sessionless_reader import SessionlessReader
from simulator.clients.transactional import TransactionalProducer
from simulator.history import History, Place
from simulator.node import SimulatedNode
from simulator.options import Options

GROUP_NAME: Final = "billing"
CLASSIC_NAME: Final = "audit"
COMMIT_SECONDS: Final = 3.0


class Workload:
    """Built before the run, started when there are topics."""

    def __init__(self, options: Options, history: History, new_client: Callable[[str], ClusterClient]) -> None:
        self._options = options
        self._history = history
        self._new_client = new_client
        self.producers: list[IdempotentProducer] = []
        self.transactional: list[TransactionalProducer] = []
        self.readers: list[Reader] = []
        self.members: list[GroupMember] = []
        self.operator: Operator | None = None

    def start(
        self,
        places: list[Place],
        spare: SimulatedNode | None = None,
        may_lose_voter: Callable[[], bool] = lambda: True,
    ) -> None:
        options, history = self._options, self._history
        between, records_max = options.seconds_between_sends, options.batch_records_max
        for number in range(options.producers):
            producer = IdempotentProducer(
                self._new_client(f"producer-{number}"), history, places, window=options.window
            )
            self.producers.append(producer)
            producer.cluster.loop.start(producer.run(between, records_max, options.burst_share))
        for number in range(options.transactional_producers):
            # The third one takes the id of the first.
            writer = TransactionalProducer(self._new_client(f"txn-{number}"), history, places, f"ledger-{number % 2}")
            self.transactional.append(writer)
            writer.cluster.loop.start(writer.run(options.seconds_between_transactions, records_max))
        for number in range(options.readers):
            reader = self._reader(number, places)
            self.readers.append(reader)
            reader.cluster.loop.start(reader.run())
        topics = sorted({place.topic for place in places})
        for number in range(options.group_members):
            self.members.append(GroupMember(self._new_client(f"member-{number}"), history, GROUP_NAME, topics))
        for number in range(options.classic_members):
            self.members.append(ClassicMember(self._new_client(f"classic-{number}"), history, CLASSIC_NAME, places))
        for member in self.members:
            member.cluster.loop.start(member.run(COMMIT_SECONDS))

        if options.seconds_between_changes:
            operator = self.operator = Operator(self._new_client("operator"), options, places, spare, may_lose_voter)
            operator.cluster.loop.start(operator.run(options.seconds_between_changes))

    def _reader(self, number: int, places: list[Place]) -> Reader:
        cluster, committed_only = self._new_client(f"reader-{number}"), number % 2 == 0
        if number < self._options.readers - self._options.sessionless_readers:
            return Reader(cluster, self._history, places, committed_only=committed_only)
        rng = cluster.room.chance.stream(f"sessionless/{cluster.name}")
        return SessionlessReader(cluster, self._history, places, rng, committed_only=committed_only)

    def stop_writing(self) -> None:
        if self.operator is not None:
            self.operator.stopped = True
        for producer in self.producers:
            producer.stopped = True
        for writer in self.transactional:
            writer.stopped = True
        for reader in self.readers:
            if isinstance(reader, SessionlessReader):
                reader.seeks = False  # Whoever is to reach the end must not leave it again.

    def stop(self) -> None:
        for reader in self.readers:
            reader.stopped = True
        for member in self.members:
            member.leave()

    def waiting(self) -> list[str]:
        """Who has something under way that has no outcome yet."""
        lanes = [
            f"{producer.name} at {lane.place} ({len(lane.waiting)} batches)"
            for producer in self.producers
            for lane in producer.lanes
            if lane.waiting
        ]
        if self.operator is not None and not self.operator.is_idle:
            lanes.append(self.operator.cluster.name)
        return lanes + [writer.cluster.name for writer in self.transactional if not writer.is_idle]

    def behind(self, ends: dict[Place, int]) -> list[str]:
        """Which readers have not read everything yet; of a group, what no member has."""
        late = []
        for reader in self.readers:
            late += [
                f"{reader.name} is at {reader.positions[place]} of {end} in {place}"
                for place, end in ends.items()
                if reader.positions[place] < end
            ]
        for group in self.groups:
            late += [
                f"nobody of {group} has reached {end} in {place}"
                for place, end in ends.items()
                if not any(member.position_of(place) >= end for member in self.members if member.group == group)
            ]
        return late

    @property
    def groups(self) -> list[str]:
        """Those that have members."""
        return list(dict.fromkeys(member.group for member in self.members))
