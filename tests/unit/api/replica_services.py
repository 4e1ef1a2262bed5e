"""What handlers see at one broker of a cluster that replicates inside a test."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast
from uuid import UUID

from ottla.api.context import RequestContext, Services
from ottla.core.controller.image import BrokerImage, MetadataImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.model.errors import OttlaError
from ottla.runtime.fetch_sessions import FetchSessions
from ottla.runtime.fetching import Fetches
from ottla.runtime.metrics import Metrics
from ottla.runtime.partition import Partition
from tests.unit.runtime.replicas import Cluster

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"


def services(cluster: Cluster, node_id: int = 1) -> Services:
    replica = cluster.replicas[node_id]

    def checked_start(partition: Partition, offset: int) -> int:
        return offset

    async def raise_starts(starts: Mapping[Partition, int]) -> dict[Partition, OttlaError]:
        await asyncio.sleep(0)
        for partition, offset in starts.items():
            partition.log.delete_records_before(offset)
            partition.grown()
        return {}

    return cast(
        Services,
        SimpleNamespace(
            world=replica.world,
            node_id=node_id,
            cluster_id=CLUSTER_ID,
            config=replica.config,
            image=MetadataImage(cluster_id=CLUSTER_ID, brokers={n: broker(n) for n in cluster.replicas}),
            partitions=replica.table,
            appender=replica.appender,
            fetches=Fetches(replica.table, asyncio.get_running_loop()),
            sessions=FetchSessions(10, random.Random(1)),
            metrics=Metrics(),
            maintenance=SimpleNamespace(checked_start=checked_start, raise_starts=raise_starts),
            log_directories=SimpleNamespace(is_full=lambda error: None),
            is_ready=True,
        ),
    )


def context(made: Services, api_key: int, version: int) -> RequestContext:
    return RequestContext(made, api_key, version, 7, "c", "10.0.0.1", "PLAINTEXT")


def broker(node_id: int) -> BrokerImage:
    endpoint = BrokerEndpoint("PLAINTEXT", f"host-{node_id}", 9092, 0)
    return BrokerImage(id=node_id, epoch=100 + node_id, incarnation_id=UUID(int=node_id), endpoints=(endpoint,))
