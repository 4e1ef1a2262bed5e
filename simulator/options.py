"""What a run is made of, drawn from its seed and printed, so that a failing one can be read and changed by hand."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Final

from simulator.chance import Chance

COMPACTED_TOPIC: Final = "state"
CLUSTER_ID: Final = "c2ltdWxhdGVkY2x1c3Rlcg"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Everything that is not an event. Rare paths are made common: segments, batches and snapshots are tiny."""

    nodes: int = 1
    seconds: int = 120
    partitions: int = 2
    replicas: int = 1
    flush_each: bool = True
    """Every acknowledgement waits for a sync. Else power goes only where a good copy of everything is left."""
    segment_bytes: int = 4096
    index_interval_bytes: int = 256
    producers: int = 2
    readers: int = 2
    sessionless_readers: int = 0
    """How many of the readers have no fetch sessions: the last ones."""
    transactional_producers: int = 1
    group_members: int = 2
    classic_members: int = 0
    window: int = 3
    burst_share: float = 0.2
    """How often producers have several batches at once, up to two windows of them."""
    batch_records_max: int = 3
    seconds_between_sends: float = 0.3
    seconds_between_transactions: float = 0.9
    seconds_between_faults: float = 12.0
    compacts: bool = False
    """There is a compacted topic, and the cleaner runs."""
    spare_broker: bool = False
    """There is one more broker that votes on nothing, and that comes and goes."""
    seconds_between_changes: float = 0.0
    """How often an operator changes something; 0 is never."""
    replica_wait_ms: int = 500
    replica_lag_ms: int = 5000

    def __str__(self) -> str:
        return " ".join(f"{item.name}={getattr(self, item.name)}" for item in fields(self))

    def broker_properties(self) -> dict[str, str]:
        voters = ",".join(f"{number}@node-{number}:9092" for number in range(1, self.nodes + 1))
        alone = self.nodes == 1
        return {
            **({} if alone else {"controller.quorum.voters": voters, "cluster.id": CLUSTER_ID}),
            "min.insync.replicas": "1" if self.replicas < 3 else "2",
            "auto.create.topics.enable": "false",
            "log.flush.interval.messages": "1" if self.flush_each else "9223372036854775807",
            "log.flush.offset.checkpoint.interval.ms": "3000",
            "log.retention.check.interval.ms": "7000",
            "log.segment.delete.delay.ms": "5000",
            "offsets.topic.num.partitions": "3",
            "transaction.state.log.num.partitions": "3",
            "offsets.topic.segment.bytes": str(max(self.segment_bytes, 16384)),
            "log.cleaner.enable": "true" if self.compacts else "false",
            "log.cleaner.backoff.ms": "3000",
            "replica.fetch.wait.max.ms": str(self.replica_wait_ms),
            "replica.lag.time.max.ms": str(self.replica_lag_ms),
            "group.initial.rebalance.delay.ms": "300",
            "group.consumer.session.timeout.ms": "6000",
            "group.consumer.min.session.timeout.ms": "6000",
            "group.consumer.heartbeat.interval.ms": "1500",
            "group.consumer.min.heartbeat.interval.ms": "1000",
            "offsets.topic.replication.factor": str(self.replicas),
            "transaction.state.log.replication.factor": str(self.replicas),
            "transaction.state.log.min.isr": "1" if self.replicas < 3 else "2",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3000",
        }

    def topics(self) -> dict[str, int]:
        """The topics with their partitions."""
        return {"orders": self.partitions, **({COMPACTED_TOPIC: 1} if self.compacts else {})}

    def topic_configs(self, topic: str) -> dict[str, str]:
        configs = {
            "internal.segment.bytes": str(self.segment_bytes),
            "index.interval.bytes": str(self.index_interval_bytes),
        }
        if topic == COMPACTED_TOPIC:
            configs |= {
                "cleanup.policy": "compact",
                "internal.segment.bytes": "1500",
                "min.cleanable.dirty.ratio": "0.01",
                "delete.retention.ms": "3000",
            }
        return configs

    def is_compacted(self, topic: str) -> bool:
        """Whether batches of a topic may be rewritten, and differ from replica to replica."""
        return self.compacts and (topic == COMPACTED_TOPIC or topic.startswith("__"))

    @property
    def machines(self) -> int:
        return self.nodes + self.spare_broker


def draw(seed: int) -> Options:
    """The options of a seed."""
    rng = Chance(seed).stream("options")
    sessionless_rng = Chance(seed).stream("sessionless readers")
    nodes = rng.choice([1, 3, 3])
    return Options(
        nodes=nodes,
        replicas=nodes,
        seconds=rng.choice([120, 360, 600]),
        partitions=rng.randint(1, 4),
        flush_each=rng.random() < 0.7,
        segment_bytes=rng.choice([1500, 4096, 16384, 1 << 20]),
        index_interval_bytes=rng.choice([1, 256, 4096]),
        producers=rng.randint(1, 3),
        readers=(readers := rng.randint(1, 3)),
        sessionless_readers=sessionless_rng.randint(0, readers),
        transactional_producers=rng.randint(0, 3),
        group_members=rng.choice([0, 1, 2, 3]),
        window=rng.randint(1, 5),
        batch_records_max=rng.choice([1, 3, 8]),
        seconds_between_sends=_spread(rng, 0.3, 4.0),
        seconds_between_transactions=_spread(rng, 1.0, 15.0),
        seconds_between_faults=_spread(rng, 4.0, 60.0),
        replica_wait_ms=rng.choice([500, 1000, 2000]),
        replica_lag_ms=rng.choice([3000, 10_000]),
        classic_members=rng.choice([0, 0, 1, 2]),
        seconds_between_changes=rng.choice([0.0, 5.0, 15.0, 40.0]),
        compacts=rng.random() < 0.4,
        spare_broker=nodes > 1 and rng.random() < 0.4,
        burst_share=rng.choice([0.0, 0.3, 0.8]),
    )


def _spread(rng: random.Random, low: float, high: float) -> float:
    """Between the two, small ones as likely as large ones."""
    return round(float(low * (high / low) ** rng.random()), 3)
