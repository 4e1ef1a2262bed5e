"""The configs that a consumer group lives by: its own where it has them, else the broker's.

How often members send heartbeats is named by the broker in each answer. A member hears of a rebalance with its next
heartbeat and not before, so the interval is the price of every rebalance, and the broker sets it as follows:

- A settled member of a group that has been quiet for QUIET_AFTER_MS is told `consumer.heartbeat.interval.ms` (of the
  group) or `group.consumer.heartbeat.interval.ms` (of the broker) if somebody has set one of them. If nobody has, it
  is told SETTLED_MS_PER_MEMBER for each such member that the shard serves, not less than SETTLED_MS_MIN and not more
  than the default of 5 s: few members hear of changes at once, and a shard answers no more than 34 settled heartbeats a
  second as long as it has no more than 166 members, and no more often than Kafka would above that.
- While a group moves (its epoch is newer than its assignment, or a member has not reached it, or the epoch has changed
  within QUIET_AFTER_MS) members are told MOVING_MS_PER_MEMBER for each member of the shard, not less than
  MOVING_MS_MIN and not more than a settled member is told.

How often assignments are made: `consumer.assignment.interval.ms` or `group.consumer.assignment.interval.ms` where one
is set. Where none is, ASSIGNMENT_MS_PER_MEMBER for each member of the group, not less than ASSIGNMENT_MS_MIN and not
more than the default of 1 s. The first member of a group never waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.model.configs.definition import ResourceType

if TYPE_CHECKING:
    from ottla.core.controller.image import MetadataImage
    from ottla.model.configs.resolve import BrokerConfig

QUIET_AFTER_MS: Final = 3_000
SETTLED_MS_MIN: Final = 500
SETTLED_MS_PER_MEMBER: Final = 30
MOVING_MS_MIN: Final = 100
MOVING_MS_PER_MEMBER: Final = 10
ASSIGNMENT_MS_MIN: Final = 100
ASSIGNMENT_MS_PER_MEMBER: Final = 10

SESSION: Final = "consumer.session.timeout.ms"
HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
ASSIGNMENT: Final = "consumer.assignment.interval.ms"


class GroupSettings(NamedTuple):
    """What the configs come to for one group."""

    config: BrokerConfig
    """What this was made from; another one makes it outdated."""
    session_timeout_ms: int
    heartbeat_interval_ms: int
    heartbeat_interval_fixed: bool
    """Somebody has set it."""
    assignment_interval_ms: int
    assignment_interval_fixed: bool

    def settled_interval_ms(self, members: int) -> int:
        """When a settled member shall be back, in a shard with so many members."""
        if self.heartbeat_interval_fixed:
            return self.heartbeat_interval_ms
        return min(self.heartbeat_interval_ms, max(SETTLED_MS_MIN, SETTLED_MS_PER_MEMBER * members))

    def moving_interval_ms(self, members: int) -> int:
        """When a member of a moving group shall be back, in a shard with so many members."""
        return min(self.settled_interval_ms(members), max(MOVING_MS_MIN, MOVING_MS_PER_MEMBER * members))

    def assignment_pause_ms(self, members: int) -> int:
        """How long a group of so many members waits from one assignment to the next."""
        if self.assignment_interval_fixed:
            return self.assignment_interval_ms
        return min(self.assignment_interval_ms, max(ASSIGNMENT_MS_MIN, ASSIGNMENT_MS_PER_MEMBER * members))


def settings_of(group_id: str, image: MetadataImage, config: BrokerConfig) -> GroupSettings:
    own = image.configs_of(ResourceType.GROUP, group_id)
    session_ms, _ = _value(SESSION, own, config, config.group_consumer_session_timeout_ms)
    heartbeat_ms, heartbeat_fixed = _value(HEARTBEAT, own, config, config.group_consumer_heartbeat_interval_ms)
    assignment_ms, assignment_fixed = _value(ASSIGNMENT, own, config, config.group_consumer_assignment_interval_ms)
    return GroupSettings(config, session_ms, heartbeat_ms, heartbeat_fixed, assignment_ms, assignment_fixed)


def _value(key: str, own: Mapping[str, str], config: BrokerConfig, broker_value: int) -> tuple[int, bool]:
    """The value of a group's key, and whether somebody has set it on the group or on the broker."""
    broker_key = f"group.{key}"
    text = own.get(key)
    if text is not None and text.strip().isdigit():
        return int(text), True
    is_set = broker_key in config.static or broker_key in config.dynamic or broker_key in config.dynamic_default
    return broker_value, is_set
