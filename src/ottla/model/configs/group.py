"""Keys of groups and of client metrics subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.model.configs.checks import at_least, no_empty_entries, one_of, share_offset_reset
from ottla.model.configs.declare import BOOLEAN, INT, LIST, STRING, accepted, effective
from ottla.model.configs.definition import ConfigDefinition

# fmt: off
_GROUP_KEYS: Final[tuple[ConfigDefinition, ...]] = (
    effective("consumer.assignment.interval.ms", INT, 1000, "Shortest time between two assignments.",
        at_least(0), synonyms=("group.consumer.assignment.interval.ms",)),
    effective("consumer.heartbeat.interval.ms", INT, 5000, "How often members send heartbeats.",
        at_least(1), synonyms=("group.consumer.heartbeat.interval.ms",)),
    effective("consumer.session.timeout.ms", INT, 45_000, "A member silent for this long is removed.",
        at_least(1), synonyms=("group.consumer.session.timeout.ms",)),
    accepted("share.assignment.interval.ms", INT, 1000, "Shortest time between two assignments.",
        at_least(0), synonyms=("group.share.assignment.interval.ms",)),
    accepted("share.auto.offset.reset", STRING, "latest", "Where a share group starts on a new partition.",
        share_offset_reset),
    accepted("share.delivery.count.limit", INT, 5, "Deliveries of a record before it is given up.",
        at_least(2), synonyms=("group.share.delivery.count.limit",)),
    accepted("share.heartbeat.interval.ms", INT, 5000, "How often members send heartbeats.",
        at_least(1), synonyms=("group.share.heartbeat.interval.ms",)),
    accepted("share.isolation.level", STRING, "read_uncommitted", "Whether records of open transactions are read.",
        one_of("read_committed", "read_uncommitted")),
    accepted("share.partition.max.record.locks", INT, 2000, "Records of one partition that may be locked.",
        at_least(100), synonyms=("group.share.partition.max.record.locks",)),
    accepted("share.record.lock.duration.ms", INT, 30_000, "How long a delivered record stays locked.",
        at_least(1000), synonyms=("group.share.record.lock.duration.ms",)),
    accepted("share.renew.acknowledge.enable", BOOLEAN, True, "Let a consumer renew the lock of a record."),
    accepted("share.session.timeout.ms", INT, 45_000, "A member silent for this long is removed.",
        at_least(1), synonyms=("group.share.session.timeout.ms",)),
    accepted("streams.assignment.interval.ms", INT, 1000, "Shortest time between two assignments.",
        at_least(0), synonyms=("group.streams.assignment.interval.ms",)),
    accepted("streams.heartbeat.interval.ms", INT, 5000, "How often members send heartbeats.",
        at_least(1), synonyms=("group.streams.heartbeat.interval.ms",)),
    accepted("streams.initial.rebalance.delay.ms", INT, 3000, "Wait for more members before the first rebalance.",
        at_least(0), synonyms=("group.streams.initial.rebalance.delay.ms",)),
    accepted("streams.num.standby.replicas", INT, 0, "Standby replicas per task.",
        at_least(0), synonyms=("group.streams.num.standby.replicas",)),
    accepted("streams.session.timeout.ms", INT, 45_000, "A member silent for this long is removed.",
        at_least(1), synonyms=("group.streams.session.timeout.ms",)),
)

_CLIENT_METRICS_KEYS: Final[tuple[ConfigDefinition, ...]] = (
    effective("interval.ms", INT, 300_000, "How often a client pushes its metrics."),
    effective("match", LIST, (), "Clients meant, as key=regular expression pairs; empty means all.", no_empty_entries),
    effective("metrics", LIST, (), "Prefixes of the metrics wanted; `*` means all.", no_empty_entries),
)
# fmt: on

GROUP_CONFIGS: Final[Mapping[str, ConfigDefinition]] = {definition.name: definition for definition in _GROUP_KEYS}
CLIENT_METRICS_CONFIGS: Final[Mapping[str, ConfigDefinition]] = {key.name: key for key in _CLIENT_METRICS_KEYS}

CLIENT_METRICS_INTERVAL_MS_MIN: Final = 100
CLIENT_METRICS_INTERVAL_MS_MAX: Final = 3_600_000
CLIENT_METRICS_MATCH_KEYS: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)

_BOUNDED: Final = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "share.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
)
GROUP_BOUNDS: Final[Mapping[str, tuple[str | None, str]]] = {
    **{
        f"{kind}.{key}": (f"group.{kind}.min.{key}", f"group.{kind}.max.{key}")
        for kind, _, key in (name.partition(".") for name in _BOUNDED)
    },
    "streams.num.standby.replicas": (None, "group.streams.max.standby.replicas"),
}
"""Group keys with the broker keys that bound them from below and from above."""
