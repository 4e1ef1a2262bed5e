"""Where the replicas of new partitions go.

Brokers are laid in a ring in which neighbours are of different racks where that is possible. The leaders of successive
partitions go round the ring from a start that depends on the topic, so that single-partition topics do not all land on
the first broker. Followers come from further round the ring, by a distance that grows with each full turn, so that the
partitions of a failed leader fall to many brokers and not to one. A second replica in a rack is taken only when every
rack has one. A broker that is fenced or about to stop gets a replica only when there are not enough others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest

from ottla.core.controller.image import BrokerImage
from ottla.model.errors import ApiError, ErrorCode


def place_partitions(
    brokers: Iterable[BrokerImage], *, first_partition: int, count: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    """The replicas of `count` partitions from `first_partition` on, the preferred leader first."""
    known = sorted(brokers, key=lambda broker: broker.id)
    active = _ring([broker for broker in known if broker.active])
    _check_enough(len(known), len(active), replication_factor)
    spare = _ring([broker for broker in known if not broker.active])
    return [
        _place(active, spare, replication_factor, start, partition)
        for partition in range(first_partition, first_partition + count)
    ]


def _check_enough(known: int, active: int, replication_factor: int) -> None:
    prefix = f"Unable to replicate the partition {replication_factor} time(s): "
    if replication_factor > known:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{prefix}The target replication factor of {replication_factor} cannot be reached because only "
            f"{known} broker(s) are registered or some brokers have all their log directories cordoned.",
        )
    if not active:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{prefix}All brokers are currently fenced or have all their log directories cordoned.",
        )


def _ring(brokers: Sequence[BrokerImage]) -> list[BrokerImage]:
    """One broker of each rack in turn; a broker without a rack is a rack of its own kind, together with its like."""
    racks: dict[str, list[BrokerImage]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack or "", []).append(broker)
    rounds = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [broker for broker in chain.from_iterable(rounds) if broker is not None]


def _place(
    active: Sequence[BrokerImage], spare: Sequence[BrokerImage], replication_factor: int, start: int, partition: int
) -> tuple[int, ...]:
    turn, leader_at = divmod(start + partition, len(active))
    leader = active[leader_at]
    others = [active[(leader_at + 1 + step) % len(active)] for step in range(len(active) - 1)]
    shift = turn % len(others) if others else 0
    chosen = [leader]
    for candidates in ([*others[shift:], *others[:shift]], list(spare)):
        while candidates and len(chosen) < replication_factor:
            racks = {broker.rack for broker in chosen}
            fresh = (broker for broker in candidates if broker.rack is None or broker.rack not in racks)
            found = next(fresh, None) or candidates[0]
            candidates.remove(found)
            chosen.append(found)
    return tuple(broker.id for broker in chosen)
