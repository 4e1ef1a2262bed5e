"""An admin: makes topics, and changes them while everybody works with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from simulator.clients.connection import Gone

if TYPE_CHECKING:
    from collections.abc import Mapping

    from simulator.clients.cluster import ClusterClient


class Admin:
    """Asks again until the cluster has done it."""

    def __init__(self, cluster: ClusterClient) -> None:
        self.cluster = cluster
        self.created: list[str] = []

    async def create_topic(self, name: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replicas,
                    configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
                )
            ],
            timeout_ms=5000,
        )
        attempt = 0
        while True:
            try:
                connection = await self.cluster.any_broker()
                answer = await connection.request(request, CreateTopicsResponse, timeout_ms=8000)
                code = ErrorCode(answer.topics[0].error_code)
                if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    self.created.append(name)
                    return
                self.cluster.room.note(self.cluster.name, "refused", f"{code.name} {answer.topics[0].error_message}")
            except Gone:
                pass
            attempt += 1
            await self.cluster.back_off(attempt)
