"""A limit for what moves of replicas may copy, so that clients do not feel them.

The rate is a config of all brokers, for leaders and followers alike; which replicas it counts for is a config of each
topic. Both are set before a move and unset after it. Brokers know the limit for all moves together, not one for each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.cli.replica_plan import Move
from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.cluster_admin import EVERY_BROKER
from ottla.client.errors import NotFoundError
from ottla.client.topic_configs import describe_topics
from ottla.model.configs.definition import ResourceType

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


def set_throttle(admin: Admin, moves: Iterable[Move], rate_bytes: int) -> None:
    """Limit what these moves copy to so many bytes a second per broker."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for move in moves:
        topic, number = move.partition
        leaders.setdefault(topic, []).extend(f"{number}:{broker}" for broker in move.before)
        followers.setdefault(topic, []).extend(f"{number}:{broker}" for broker in move.adding)
    rate = str(rate_bytes)
    admin.alter_configs(ResourceType.BROKER, EVERY_BROKER, set_to={LEADER_RATE: rate, FOLLOWER_RATE: rate})
    for topic, replicas in leaders.items():
        values = {LEADER_REPLICAS: ",".join(replicas), FOLLOWER_REPLICAS: ",".join(followers[topic])}
        admin.alter_configs(ResourceType.TOPIC, topic, set_to={key: value for key, value in values.items() if value})


def clear_throttle(admin: Admin, topics: Iterable[str]) -> None:
    """Lift the limit from these topics and from all brokers."""
    for topic in topics:
        try:
            admin.alter_configs(ResourceType.TOPIC, topic, unset=(LEADER_REPLICAS, FOLLOWER_REPLICAS))
        except NotFoundError:
            continue  # deleted meanwhile
    admin.alter_configs(ResourceType.BROKER, EVERY_BROKER, unset=(LEADER_RATE, FOLLOWER_RATE))


def throttled_topics(cluster: Cluster) -> list[str]:
    """The topics that have a limit of their own."""
    names = [topic.name for topic in Admin(cluster).list_topics()]
    configs = describe_topics(cluster, names, (LEADER_REPLICAS, FOLLOWER_REPLICAS))
    return [name for name, found in configs.items() if any(value.own for value in found.values())]
