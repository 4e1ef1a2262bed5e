"""Broker keys about tiered storage."""

from __future__ import annotations

from typing import Final

from ottla.model.configs.checks import at_least, between, not_empty
from ottla.model.configs.declare import BOOLEAN, CLUSTER_WIDE, DOUBLE, INT, LONG, LONG_MAX, STRING, accepted
from ottla.model.configs.definition import ConfigDefinition

# One key per line, two where the words need it.
# fmt: off
TIERED_KEYS: Final[tuple[ConfigDefinition, ...]] = (
    accepted("follower.fetch.last.tiered.offset.enable", BOOLEAN, False,
        "A new follower starts at the last tiered offset.", update=CLUSTER_WIDE),
    accepted("remote.fetch.max.wait.ms", INT, 500,
        "How long a fetch waits for remote data.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.list.offsets.request.timeout.ms", LONG, 30_000,
        "How long an offset lookup waits for remote data.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.log.index.file.cache.total.size.bytes", LONG, 1_073_741_824,
        "Disk space for cached remote indexes.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.log.index.file.cache.ttl.ms", LONG, 900_000,
        "How long an unused remote index stays cached.", at_least(-1), internal=True),
    accepted("remote.log.manager.copier.thread.pool.size", INT, 10,
        "Threads that upload segments.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX,
        "Ceiling for uploads per second.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.log.manager.copy.quota.window.num", INT, 11, "Windows kept to measure uploads.", at_least(1)),
    accepted("remote.log.manager.copy.quota.window.size.seconds", INT, 1,
        "Length of a window to measure uploads.", at_least(1)),
    accepted("remote.log.manager.expiration.thread.pool.size", INT, 10,
        "Threads that delete remote segments.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX,
        "Ceiling for remote reads per second.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.log.manager.fetch.quota.window.num", INT, 11,
        "Windows kept to measure remote reads.", at_least(1)),
    accepted("remote.log.manager.fetch.quota.window.size.seconds", INT, 1,
        "Length of a window to measure remote reads.", at_least(1)),
    accepted("remote.log.manager.follower.thread.pool.size", INT, 2,
        "Threads that follow remote state.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.log.manager.task.interval.ms", LONG, 30_000,
        "How often partitions are looked over for uploads.", at_least(1)),
    accepted("remote.log.manager.task.retry.backoff.max.ms", LONG, 30_000,
        "Longest wait before a failed task is repeated.", at_least(1), internal=True),
    accepted("remote.log.manager.task.retry.backoff.ms", LONG, 500,
        "First wait before a failed task is repeated.", at_least(1), internal=True),
    accepted("remote.log.manager.task.retry.jitter", DOUBLE, 0.2,
        "Random part of that wait.", between(0, 0.5), internal=True),
    accepted("remote.log.manager.thread.pool.size", INT, 2,
        "Threads that schedule uploads and deletions.", at_least(1)),
    accepted("remote.log.metadata.custom.metadata.max.bytes", INT, 128,
        "Largest note a storage plugin may keep per segment.", at_least(0)),
    accepted(
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Class that keeps the metadata of remote segments.",
        not_empty,
    ),
    accepted("remote.log.metadata.manager.class.path", STRING, None, "Class path of that class."),
    accepted("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.",
        "Prefix of the keys handed to that class.", not_empty),
    accepted("remote.log.metadata.manager.listener.name", STRING, None, "Listener that class connects to.", not_empty),
    accepted("remote.log.reader.max.pending.tasks", INT, 100, "Remote reads waiting at once.", at_least(1)),
    accepted("remote.log.reader.threads", INT, 10,
        "Threads that read remote segments.", at_least(1), update=CLUSTER_WIDE),
    accepted("remote.log.storage.manager.class.name", STRING, None, "Class that stores remote segments.", not_empty),
    accepted("remote.log.storage.manager.class.path", STRING, None, "Class path of that class."),
    accepted("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.",
        "Prefix of the keys handed to that class.", not_empty),
    accepted("remote.log.storage.system.enable", BOOLEAN, False, "Use tiered storage."),
)
# fmt: on
