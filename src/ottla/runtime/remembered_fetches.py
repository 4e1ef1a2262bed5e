"""Fetches without a session, remembered by their connection, for clients that send nothing else.

Theory of operation. librdkafka, and so most clients that are not Java, knows no fetch sessions: a consumer of 200
partitions names all of them in every request and wants all of them in every answer. But it asks for nearly the same
each time, so its connection remembers the last request as a session of its own, which nobody else knows of. What has
changed since (mostly one offset) is found by comparing rows; only partitions that changed, here or in the request, are
looked at; and what is said of a quiet partition is kept as the bytes that say it.

The order of the answer is that of the request, whatever it was the last time: librdkafka begins with another partition
in each request, and leaves out those that it has enough of.

What an editor must keep true:
- A row that is kept says what the client was last told of its partition (`FetchedPartition.told`). A partition that has
  none is dirty, and what is dirty gets a new one, or goes out as an error.
- Whoever is not in a request is forgotten at once, and no longer watches.
- Memory is bounded for all connections together, and given back when a connection closes.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ottla.runtime.fetch_sessions import FetchedPartition, FetchSession, TopicKey
from ottla.wire.fetch import Row, encode_quiet
from ottla.wire.fetch_types import FetchPartition, PartitionData

PARTITIONS_MAX: Final = 200_000
"""Remembered on all connections together. Whoever comes later is served as if it came for the first time."""

Order: TypeAlias = list[tuple[TopicKey, list["RememberedPartition"]]]
Changed: TypeAlias = list[tuple[TopicKey, list[PartitionData]]]
Rows: TypeAlias = list[tuple[TopicKey, list[Row]]]


class RememberedPartition(FetchedPartition):
    """A partition as it was asked for, and what the client was told when there was nothing in it to read."""

    __slots__ = ("asked", "row")

    def __init__(self, session: FetchSession, topic: TopicKey, asked: FetchPartition) -> None:
        super().__init__(session, topic, asked.index)
        self.asked = asked
        self.row: bytes | None = None


class RememberedFetches:
    """How much is remembered on all connections."""

    __slots__ = ("partitions", "partitions_max")

    def __init__(self, partitions_max: int = PARTITIONS_MAX) -> None:
        self.partitions = 0
        self.partitions_max = partitions_max


class RememberedFetch:
    """What one connection asks for."""

    __slots__ = ("_isolation_level", "_topics", "_total", "_version", "session")

    def __init__(self, total: RememberedFetches, version: int, isolation_level: int) -> None:
        self.session = FetchSession(lasts=True)
        self._total = total
        self._version = version
        self._isolation_level = isolation_level
        self._topics: dict[TopicKey, dict[int, RememberedPartition]] = {}

    def fits(self, version: int, isolation_level: int) -> bool:
        """Whether a request of this kind can be answered from here: not while another one waits."""
        return version == self._version and isolation_level == self._isolation_level and self.session.waiting is None

    def take(self, topics: list[tuple[TopicKey, list[FetchPartition]]]) -> Order:
        """Take over a request. Returns its partitions in its order."""
        order: Order = []
        for topic, asked in topics:
            known = self._topics.get(topic)
            if known is None:
                known = self._topics[topic] = {}
            partitions = []
            for row in asked:
                fetched = known.get(row[0])
                if fetched is None:
                    fetched = known[row[0]] = self._add(topic, row)
                elif fetched.asked != row:
                    fetched.asked = row
                    self.session.update(topic, (row,))
                partitions.append(fetched)
            order.append((topic, partitions))
        if sum(len(partitions) for _, partitions in order) != len(self.session.partitions):
            self._forget_others(order)
        return order

    def complete(self, order: Order, changed: Changed) -> Rows:
        """The whole answer: what has changed, and what was said before of the others."""
        told: dict[RememberedPartition, PartitionData] = {}
        for topic, rows in changed:
            known = self._topics[topic]
            for data in rows:
                fetched = known[data.index]
                if data.error_code:
                    fetched.row = None
                else:
                    fetched.row = encode_quiet(self._version, data)
                if not data.is_quiet:
                    told[fetched] = data
        # A row is missing only where there is an error, and that has changed: it does not stay what it was.
        return [(topic, [told.get(fetched, fetched.row) for fetched in partitions]) for topic, partitions in order]  # type: ignore[misc]

    def close(self) -> None:
        """Nobody asks any more."""
        self._total.partitions -= len(self.session.partitions)
        self.session.close()
        self._topics.clear()

    def _add(self, topic: TopicKey, asked: FetchPartition) -> RememberedPartition:
        fetched = RememberedPartition(self.session, topic, asked)
        self.session.partitions[topic, asked.index] = fetched
        self.session.update(topic, (asked,))
        self._total.partitions += 1
        return fetched

    def _forget_others(self, order: Order) -> None:
        wanted = {(topic, fetched.index) for topic, partitions in order for fetched in partitions}
        for topic, index in [place for place in self.session.partitions if place not in wanted]:
            self.session.forget(topic, (index,))
            del self._topics[topic][index]
            if not self._topics[topic]:
                del self._topics[topic]
            self._total.partitions -= 1
