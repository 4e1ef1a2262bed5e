"""Metrics of the coordinators: groups and their offsets, transactional ids, and how loading went.

`kafka_coordinator_group_*` are Kafka's older names, `kafka_server_*_coordinator_metrics_*` its current ones; dashboards
use both. Only what this broker coordinates is counted, so a sum over all brokers counts a group once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.server.metric_text import Family

if TYPE_CHECKING:
    from ottla.api.context import Services
    from ottla.core.groups.shard import GroupShard
    from ottla.core.transactions.shard import TransactionShard
    from ottla.runtime.coordinators import Coordinators

GROUPS_PER_PIECE: Final = 1000
_GROUP: Final = "kafka_server_group_coordinator_metrics_"
_TRANSACTION: Final = "kafka_server_transaction_coordinator_metrics_"
_OLD_GROUP: Final = "kafka_coordinator_group_groupmetadatamanager_"
CONSUMER_STATES: Final = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
CLASSIC_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
PROTOCOLS: Final = ("classic", "consumer")


def _gauge(name: str, help_text: str) -> Family:
    return Family(name, "gauge", help_text)


TRANSACTIONAL_IDS: Final = _gauge("ottla_transactional_ids", "Transactional ids, by state.")
SKIPPED: Final = Family(
    "ottla_coordinator_records_skipped_total", "counter", "Unknown or corrupt records that loading passed over."
)


def coordinator_families(services: Services) -> Iterator[str]:
    """Pieces of the page."""
    groups, transactions = services.groups, services.transactions.coordinators
    yield from _runtime_families(_GROUP, groups)
    yield from _group_families(groups)
    yield from _runtime_families(_TRANSACTION, transactions)
    yield from _transaction_families(transactions)
    yield SKIPPED.samples(((("topic", kind.topic),), kind.records_skipped) for kind in (groups, transactions))


def _runtime_families(prefix: str, coordinators: Coordinators[Any]) -> Iterator[str]:
    states = coordinators.counts()
    partitions = _gauge(f"{prefix}num_partitions", "Partitions that are coordinated here, by state.")
    yield partitions.samples(((("state", state),), count) for state, count in states.items())
    slowest = _gauge(f"{prefix}partition_load_time_max", "Milliseconds that the slowest load since the start took.")
    yield slowest.alone(coordinators.load_ms_max)


def _group_families(coordinators: Coordinators[Any]) -> Iterator[str]:
    counts: Counter[tuple[str, str]] = Counter()
    offsets = 0
    for coordinator in coordinators.active.values():
        state = cast("GroupShard", coordinator.shard).state
        offsets += state.offsets.count
        found = iter(list(state.groups.values()))
        while piece := list(islice(found, GROUPS_PER_PIECE)):
            counts.update((group.kind, group.state_name) for group in piece)
            yield ""
    by_protocol = {
        protocol: sum(count for (kind, _), count in counts.items() if kind == protocol) for protocol in PROTOCOLS
    }
    yield _gauge(f"{_GROUP}group_count", "Groups, by protocol.").samples(
        ((("protocol", protocol),), count) for protocol, count in by_protocol.items()
    )
    yield _gauge(f"{_GROUP}consumer_group_count", "Groups of the consumer protocol, by state.").samples(
        ((("state", name.lower()),), counts["consumer", name]) for name in CONSUMER_STATES
    )
    yield _gauge(f"{_OLD_GROUP}numgroups", "Groups of the classic protocol.").alone(by_protocol["classic"])
    yield _gauge(f"{_OLD_GROUP}numoffsets", "Committed offsets.").alone(offsets)
    for name in CLASSIC_STATES:
        family = _gauge(f"{_OLD_GROUP}numgroups{name.lower()}", f"Classic groups in state {name}.")
        yield family.alone(counts["classic", name])


def _transaction_families(coordinators: Coordinators[Any]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for coordinator in coordinators.active.values():
        found = iter(list(cast("TransactionShard", coordinator.shard).table.transactions.values()))
        while piece := list(islice(found, GROUPS_PER_PIECE)):
            counts.update(record.state.name.lower() for record in piece)
            yield ""
    yield TRANSACTIONAL_IDS.samples(((("state", state),), count) for state, count in sorted(counts.items()))
