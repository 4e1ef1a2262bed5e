"""Which replicas partitions are to have, so that brokers are evenly loaded and as little as possible is copied.

Theory of operation. `Planner` knows how many replicas and preferred leaders each broker has in the whole cluster. It
takes partitions one by one to the brokers that are allowed: replicas there stay, one that is elsewhere is replaced at
its own place in the list by the broker with the least load, in a rack that has none yet if there is one. `spread`
then moves single replicas from the fullest to the emptiest broker while that evens things out, and `share_leaders`
puts another replica first where a broker would lead too many. Same input, same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.cli.failures import CommandError, Exit
from ottla.model.ids import TopicPartition

Placement: TypeAlias = Mapping[TopicPartition, tuple[int, ...]]


class Move(NamedTuple):
    """A partition and its replicas, before and after."""

    partition: TopicPartition
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def adding(self) -> tuple[int, ...]:
        """What has to be copied; nothing if only the order changes or replicas go."""
        return tuple(broker for broker in self.after if broker not in self.before)


class Planner:
    """Plans moves of some partitions of a cluster onto `racks`: the brokers that are allowed, with their racks."""

    def __init__(self, everything: Placement, racks: Mapping[int, str | None]) -> None:
        self._racks = racks
        self._before = dict(everything)
        self._after: dict[TopicPartition, list[int]] = {}
        self._replicas = dict.fromkeys(sorted(racks), 0)
        self._leaders = dict.fromkeys(sorted(racks), 0)
        for replicas in everything.values():
            self._count(replicas, 1)

    def moves(self) -> list[Move]:
        """What differs from now."""
        return [
            Move(partition, self._before[partition], tuple(after))
            for partition, after in sorted(self._after.items())
            if tuple(after) != self._before[partition]
        ]

    def place(self, partition: TopicPartition, replication_factor: int | None = None) -> None:
        """Bring a partition onto the allowed brokers, with as many replicas as before or as given."""
        before = self._before[partition]
        wanted = len(before) if replication_factor is None else replication_factor
        if wanted > len(self._racks):
            raise CommandError(
                f"{partition} needs {wanted} brokers, and there are {len(self._racks)} for it "
                f"({', '.join(map(str, sorted(self._racks)))}): start or allow more, or give it fewer replicas with "
                f"`ottla cluster reassign {partition.topic} --replication-factor {len(self._racks)}`",
                Exit.USAGE,
            )
        self._count(before, -1)
        after: list[int | None] = [broker if broker in self._racks else None for broker in before]
        while len(after) < wanted:
            after.append(None)
        chosen = self._filled(self._shortened(after, wanted))
        self._count(chosen, 1)
        self._after[partition] = chosen

    def spread(self) -> None:
        """Even out the replicas of the partitions that were placed."""
        holding: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self._racks}
        for partition, replicas in sorted(self._after.items()):
            for broker in replicas:
                holding[broker][partition] = None
        for _ in range(sum(len(replicas) for replicas in self._after.values())):
            step = next(self._steps(holding), None)
            if step is None:
                return
            partition, full, empty = step
            replicas = self._after[partition]
            self._count(replicas, -1)
            replicas[replicas.index(full)] = empty
            self._count(replicas, 1)
            del holding[full][partition]
            holding[empty][partition] = None

    def share_leaders(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Even out who comes first, among the partitions that were placed (or those given)."""
        chosen = sorted(self._after if partitions is None else partitions)
        for _ in range(len(self._racks)):
            changed = False
            for partition in chosen:
                replicas = self._after[partition]
                least = min(replicas, key=lambda broker: (self._leaders[broker], replicas.index(broker)))
                if self._leaders[least] + 1 < self._leaders[replicas[0]]:
                    self._leaders[replicas[0]] -= 1
                    self._leaders[least] += 1
                    at = replicas.index(least)
                    replicas[0], replicas[at] = replicas[at], replicas[0]
                    changed = True
            if not changed:
                return

    def _count(self, replicas: Sequence[int], by: int) -> None:
        for broker in replicas:
            if broker in self._replicas:
                self._replicas[broker] += by
        if replicas and replicas[0] in self._leaders:
            self._leaders[replicas[0]] += by

    def _shortened(self, replicas: list[int | None], wanted: int) -> list[int | None]:
        """Without those that are too many: first what is on no allowed broker, then from racks with several."""
        while len(replicas) > wanted:
            if None in replicas:
                replicas.remove(None)
                continue
            kept = [broker for broker in replicas if broker is not None]
            replicas.remove(max(kept[1:], key=lambda broker: (self._doubles(broker, kept), self._replicas[broker])))
        return replicas

    def _filled(self, replicas: list[int | None]) -> list[int]:
        filled: list[int | None] = list(replicas)
        for at, broker in enumerate(replicas):
            if broker is None:
                there = [other for other in filled if other is not None]
                candidates = [other for other in self._racks if other not in there]
                filled[at] = min(candidates, key=lambda other: self._cost(other, there, leads=at == 0))
        return [broker for broker in filled if broker is not None]

    def _cost(self, broker: int, beside: Sequence[int], *, leads: bool) -> tuple[int, int, int, int]:
        led = self._leaders[broker] if leads else 0
        return self._doubles(broker, beside), self._replicas[broker], led, broker

    def _doubles(self, broker: int, beside: Sequence[int]) -> int:
        """How many others are in its rack; brokers without a rack are in none together."""
        rack = self._racks[broker]
        if rack is None:
            return 0
        return sum(1 for other in beside if other != broker and self._racks[other] == rack)

    def _steps(self, holding: Mapping[int, Mapping[TopicPartition, None]]) -> Iterator[tuple[TopicPartition, int, int]]:
        """Single moves that even things out, the best first: partition, from, to."""
        by_load = sorted(self._racks, key=lambda broker: (self._replicas[broker], broker))
        for full in reversed(by_load):
            for empty in by_load:
                if self._replicas[full] - self._replicas[empty] <= 1:
                    break
                for partition in holding[full]:
                    if partition in holding[empty]:
                        continue
                    others = [broker for broker in self._after[partition] if broker != full]
                    if self._doubles(empty, others) <= self._doubles(full, others):
                        yield partition, full, empty


def new_replicas(moves: Sequence[Move]) -> int:
    """How many copies have to be made."""
    return sum(len(move.adding) for move in moves)
