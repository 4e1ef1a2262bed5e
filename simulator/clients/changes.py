"""An operator: changes topics, replicas, leaders, voters and brokers while everybody works with them.

Theory of operation. One change after the other, each drawn by chance, each asked for once and counted by what the
cluster answered. A change that is refused (another one is under way, nobody leads) is no failure: the next one comes.
What a change must not do, lose a record or an offset, others find out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from ottla.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataResponse
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from simulator.clients.connection import Gone
from simulator.history import Place

if TYPE_CHECKING:
    from simulator.clients.cluster import ClusterClient
    from simulator.options import Options

ASK_MS: Final = 8000
EVACUATION_SECONDS_MAX: Final = 20
UNREGISTER_ATTEMPTS_MAX: Final = 20
TOPIC_RESOURCE: Final = 2
CHOICES: Final = {
    "internal.segment.bytes": ("1500", "4096", "16384", "1048576"),
    "index.interval.bytes": ("1", "256", "4096"),
    "segment.ms": ("5000", "604800000"),
    "max.message.bytes": ("100000", "1048588"),
}
"""What may be set on a topic without losing records."""


class Machine(Protocol):
    """The broker that an operator may take away and bring back."""

    @property
    def node_id(self) -> int: ...

    @property
    def is_alive(self) -> bool: ...

    @property
    def is_ready(self) -> bool: ...

    def retire(self) -> None:
        """Stop, and stay so."""

    def renew(self) -> None:
        """Start with an empty disk."""


class Operator:
    """Changes something every few seconds, until it is stopped."""

    def __init__(
        self,
        cluster: ClusterClient,
        options: Options,
        places: list[Place],
        spare: Machine | None = None,
        may_lose_voter: Callable[[], bool] = lambda: True,
    ) -> None:
        self.cluster = cluster
        self.stopped = False
        self.is_idle = True
        self._options = options
        self._places = places
        self._scratch = 0
        self._spare = spare
        self._may_lose_voter = may_lose_voter
        self._changes: list[tuple[str, Callable[[], Awaitable[int]]]] = [
            ("set a config", self._set_config),
            ("create a topic", self._create_topic),
            ("delete a topic", self._delete_topic),
        ]
        if options.replicas > 1:
            self._changes += [
                ("reassign", self._reassign),
                ("cancel a reassignment", self._cancel),
                ("elect leaders", self._elect),
                ("remove a voter", self._remove_voter),
            ]
        if spare is not None:
            self._changes.append(("replace a broker", self._replace_broker))

    async def run(self, seconds_between: float) -> None:
        rng = self.cluster.rng
        while not self.stopped:
            await asyncio.sleep(rng.expovariate(1 / seconds_between))
            if not self.stopped:
                name, change = rng.choice(self._changes)
                self.is_idle = False
                await self._try(name, change)
                self.is_idle = True

    async def _try(self, name: str, change: Callable[[], Awaitable[int]]) -> None:
        counts, before = self.cluster.room.counts, self.cluster.room.timeline.now_us
        try:
            code = ErrorCode(await change())
        except Gone:
            counts[f"change unanswered: {name}"] += 1
            return
        outcome = "change" if code is ErrorCode.NONE else "change refused"
        counts[f"{outcome}: {name}"] += 1
        self.cluster.room.note(self.cluster.name, "change", f"{name}: {code.name}, asked at {before / 1e6:.3f} s")

    # -- topics

    async def _set_config(self) -> int:
        rng = self.cluster.rng
        name = rng.choice(list(CHOICES))
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=rng.choice(self._places).topic,
            configs=[AlterableConfig(name=name, config_operation=0, value=rng.choice(CHOICES[name]))],
        )
        connection = await self.cluster.any_broker()
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = await connection.request(request, IncrementalAlterConfigsResponse, timeout_ms=ASK_MS)
        return answer.responses[0].error_code

    async def _create_topic(self) -> int:
        self._scratch += 1
        topic = CreatableTopic(
            name=f"scratch-{self._scratch}", num_partitions=2, replication_factor=self._options.replicas
        )
        connection = await self.cluster.any_broker()
        request = CreateTopicsRequest(topics=[topic], timeout_ms=5000)
        answer = await connection.request(request, CreateTopicsResponse, timeout_ms=ASK_MS)
        return answer.topics[0].error_code

    async def _delete_topic(self) -> int:
        if not self._scratch:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name = f"scratch-{self._scratch}"
        connection = await self.cluster.any_broker()
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
        answer = await connection.request(request, DeleteTopicsResponse, timeout_ms=ASK_MS)
        return answer.responses[0].error_code

    # -- replicas and leaders

    async def _reassign(self) -> int:
        return await self._reassign_one(self.cluster.rng.choice(self._places))

    async def _reassign_one(self, place: Place) -> int:
        rng = self.cluster.rng
        brokers = sorted(broker.node_id for broker in (await self._metadata()).brokers)
        if len(brokers) < self._options.replicas:
            return ErrorCode.INVALID_REPLICATION_FACTOR
        return await self._move(place, rng.sample(brokers, self._options.replicas))

    async def _cancel(self) -> int:
        """Of one that has just begun, if it is not over by then."""
        place = self.cluster.rng.choice(self._places)
        return await self._reassign_one(place) or await self._move(place, None)

    async def _move(self, place: Place, replicas: list[int] | None) -> int:
        partition = ReassignablePartition(partition_index=place.partition, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=place.topic, partitions=[partition])], timeout_ms=5000
        )
        connection = await self.cluster.any_broker()
        answer = await connection.request(request, AlterPartitionReassignmentsResponse, timeout_ms=ASK_MS)
        return answer.error_code or answer.responses[0].partitions[0].error_code

    async def _elect(self) -> int:
        connection = await self.cluster.any_broker()
        request = ElectLeadersRequest(topic_partitions=None, timeout_ms=5000)
        return (await connection.request(request, ElectLeadersResponse, timeout_ms=ASK_MS)).error_code

    async def _metadata(self) -> MetadataResponse:
        connection = await self.cluster.any_broker()
        return await connection.request(MetadataRequest(topics=None), MetadataResponse, timeout_ms=ASK_MS)

    # -- brokers

    async def _replace_broker(self) -> int:
        """Move everything away from the spare broker, stop it, strike it off, and bring in another with its id."""
        spare = self._spare
        if spare is None or not spare.is_ready or not await self._evacuate(spare.node_id):
            return ErrorCode.REQUEST_TIMED_OUT
        spare.retire()
        code = await self._unregister(spare)
        spare.renew()
        return code

    async def _evacuate(self, node_id: int) -> bool:
        """Whether the broker has no replica any more."""
        for _ in range(EVACUATION_SECONDS_MAX):
            found = await self._metadata()
            others = sorted(broker.node_id for broker in found.brokers if broker.node_id != node_id)
            hosted = [
                (Place(topic.name or "", row.partition_index), list(row.replica_nodes))
                for topic in found.topics
                for row in topic.partitions
                if node_id in row.replica_nodes
            ]
            if not hosted:
                return True
            for place, replicas in hosted:
                kept = [replica for replica in replicas if replica != node_id]
                more = [other for other in others if other not in kept]
                await self._move(place, [*kept, *more][: len(replicas)])
            await asyncio.sleep(1)
        return False

    async def _unregister(self, spare: Machine) -> int:
        code: int = ErrorCode.REQUEST_TIMED_OUT
        for attempt in range(1, UNREGISTER_ATTEMPTS_MAX):
            await self.cluster.back_off(attempt)
            if spare.is_alive:
                continue
            try:
                connection = await self.cluster.any_broker()
                request = UnregisterBrokerRequest(broker_id=spare.node_id)
                answer = await connection.request(request, UnregisterBrokerResponse, timeout_ms=ASK_MS)
            except Gone:
                continue
            code = answer.error_code
            if code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
                return ErrorCode.NONE
        return code

    # -- voters

    async def _remove_voter(self) -> int:
        """It becomes one again by itself, as `controller.quorum.auto.join.enable` says."""
        voters = await self._voters()
        if len(voters) < self._options.nodes or not self._may_lose_voter():
            return ErrorCode.INVALID_REQUEST  # The last one that was removed, or lost its disk, is not back.
        node_id = self.cluster.rng.choice(sorted(voters))
        connection = await self.cluster.any_broker()
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=node_id, voter_directory_id=voters[node_id])
        answer = await connection.request(request, RemoveRaftVoterResponse, timeout_ms=ASK_MS)
        return answer.error_code

    async def _voters(self) -> dict[int, UUID]:
        partition = RequestPartitionData(partition_index=0)
        request = DescribeQuorumRequest(topics=[RequestTopicData(topic_name=METADATA_TOPIC, partitions=[partition])])
        connection = await self.cluster.any_broker()
        answer = await connection.request(request, DescribeQuorumResponse, timeout_ms=ASK_MS)
        if answer.error_code or answer.topics[0].partitions[0].error_code:
            raise Gone("nobody says who votes")
        return {voter.replica_id: voter.replica_directory_id for voter in answer.topics[0].partitions[0].current_voters}
