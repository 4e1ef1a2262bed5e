"""Topic keys: what may be set on one topic, and the broker keys that give their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.model.configs.checks import at_least, between, each_of, gzip_level, one_of, throttled_replicas
from ottla.model.configs.declare import BOOLEAN, DOUBLE, INT, LIST, LONG, LONG_MAX, STRING, accepted, effective
from ottla.model.configs.definition import ConfigDefinition

# The first synonym is the broker key that DescribeConfigs names; the rest are its weaker units.
# fmt: off
_KEYS: Final[tuple[ConfigDefinition, ...]] = (
    effective("cleanup.policy", LIST, ("delete",), "What happens to old segments: `delete`, `compact`, or both.",
        each_of("compact", "delete"), synonyms=("log.cleanup.policy",)),
    effective("compression.gzip.level", INT, -1, "Level used when the broker itself compresses with gzip.",
        gzip_level, synonyms=("compression.gzip.level",)),
    effective("compression.lz4.level", INT, 9, "Level used when the broker itself compresses with lz4.",
        between(1, 17), synonyms=("compression.lz4.level",)),
    effective("compression.type", STRING, "producer",
        "Codec the topic is stored with; `producer` keeps what the producer chose.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), synonyms=("compression.type",)),
    effective("compression.zstd.level", INT, 3, "Level used when the broker itself compresses with zstd.",
        between(-131_072, 22), synonyms=("compression.zstd.level",)),
    effective("delete.retention.ms", LONG, 86_400_000,
        "How long a tombstone stays readable after its segment was compacted.",
        at_least(0), synonyms=("log.cleaner.delete.retention.ms",)),
    effective("file.delete.delay.ms", LONG, 60_000, "How long the files of a deleted segment stay on disk.",
        at_least(0), synonyms=("log.segment.delete.delay.ms",)),
    effective("flush.messages", LONG, LONG_MAX, "fsync after this many records.",
        at_least(1), synonyms=("log.flush.interval.messages",)),
    effective("flush.ms", LONG, LONG_MAX, "fsync when the oldest unsynced record is this old.",
        at_least(0), synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms")),
    effective("follower.replication.throttled.replicas", LIST, (),
        "Replicas whose fetching is throttled, as partition:broker pairs, or `*`.", throttled_replicas),
    effective("index.interval.bytes", INT, 4096, "An index entry is made about every so many bytes of log.",
        at_least(0), synonyms=("log.index.interval.bytes",)),
    effective("internal.segment.bytes", INT, None, "Segment size without the usual lower bound, for tests.",
        internal=True),
    effective("leader.replication.throttled.replicas", LIST, (),
        "Replicas whose leader throttles them, as partition:broker pairs, or `*`.", throttled_replicas),
    accepted("local.retention.bytes", LONG, -2, "Bytes kept on local disk when segments are tiered; -2 follows "
        "retention.bytes.", at_least(-2), synonyms=("log.local.retention.bytes",)),
    accepted("local.retention.ms", LONG, -2, "Time kept on local disk when segments are tiered; -2 follows "
        "retention.ms.", at_least(-2), synonyms=("log.local.retention.ms",)),
    effective("max.compaction.lag.ms", LONG, LONG_MAX, "A record is compacted at the latest after this long.",
        at_least(1), synonyms=("log.cleaner.max.compaction.lag.ms",)),
    effective("max.message.bytes", INT, 1_048_588, "Largest record batch that is accepted, after compression.",
        at_least(0), synonyms=("message.max.bytes",)),
    effective("message.timestamp.after.max.ms", LONG, 3_600_000,
        "A record may be dated at most this far ahead of the broker's clock.",
        at_least(0), synonyms=("log.message.timestamp.after.max.ms",)),
    effective("message.timestamp.before.max.ms", LONG, LONG_MAX,
        "A record may be dated at most this far behind the broker's clock.",
        at_least(0), synonyms=("log.message.timestamp.before.max.ms",)),
    effective("message.timestamp.type", STRING, "CreateTime",
        "Whose clock dates a record: `CreateTime` the producer's, `LogAppendTime` the broker's.",
        one_of("CreateTime", "LogAppendTime"), synonyms=("log.message.timestamp.type",)),
    effective("min.cleanable.dirty.ratio", DOUBLE, 0.5,
        "Share of uncompacted bytes from which on the log is worth compacting.",
        between(0, 1), synonyms=("log.cleaner.min.cleanable.ratio",)),
    effective("min.compaction.lag.ms", LONG, 0, "A record is left alone for at least this long.",
        at_least(0), synonyms=("log.cleaner.min.compaction.lag.ms",)),
    effective("min.insync.replicas", INT, 1, "Replicas that must have a record before acks=all is answered.",
        at_least(1), synonyms=("min.insync.replicas",)),
    effective("ottla.record.validation", STRING, "header", "What is checked of a produced batch: its `header` and "
        "checksum, or in `full` every record in it as well. Of timestamps, `header` sees those of the batch (its base "
        "and its largest one, as the producer says), `full` that of each record, and corrects a header that does not "
        "have the largest of them.",
        one_of("header", "full"), synonyms=("ottla.record.validation",)),
    effective("preallocate", BOOLEAN, False, "Take the room of a whole segment when it is begun.",
        synonyms=("log.preallocate",)),
    accepted("remote.log.copy.disable", BOOLEAN, False, "Upload no more segments; what is remote stays readable."),
    accepted("remote.log.delete.on.disable", BOOLEAN, False,
        "Delete what is remote when tiered storage is switched off for the topic."),
    accepted("remote.storage.enable", BOOLEAN, False, "Use tiered storage for the topic."),
    effective("retention.bytes", LONG, -1,
        "Size above which a partition loses its oldest segments; -1 for no limit.", synonyms=("log.retention.bytes",)),
    effective("retention.ms", LONG, 604_800_000, "Age at which segments are deleted; -1 for no limit.",
        at_least(-1), synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours")),
    effective("segment.bytes", INT, 1_073_741_824, "Size at which a segment is closed and a new one begun.",
        at_least(1_048_576), synonyms=("log.segment.bytes",)),
    effective("segment.index.bytes", INT, 10_485_760, "Size at which a full index rolls its segment.",
        at_least(4), synonyms=("log.index.size.max.bytes",)),
    effective("segment.jitter.ms", LONG, 0, "Random part taken off segment.ms.",
        at_least(0), synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours")),
    effective("segment.ms", LONG, 604_800_000, "Age at which a segment is closed and a new one begun.",
        at_least(1), synonyms=("log.roll.ms", "log.roll.hours")),
    effective("unclean.leader.election.enable", BOOLEAN, False,
        "Let a replica that is out of sync become leader when no other is left; loses records.",
        synonyms=("unclean.leader.election.enable",)),
)
# fmt: on

TOPIC_CONFIGS: Final[Mapping[str, ConfigDefinition]] = {definition.name: definition for definition in _KEYS}
