"""FindCoordinator: who looks after a group or a transactional id."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from ottla.api import find_coordinator
from ottla.api.context import RequestContext
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, ZERO_UUID
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.unit.api.turns import Turns


def broker(node_id: int, *, fenced: bool = False) -> BrokerImage:
    endpoint = BrokerEndpoint("PLAINTEXT", f"host-{node_id}", 9092, 0)
    return BrokerImage(id=node_id, epoch=1, incarnation_id=ZERO_UUID, endpoints=(endpoint,), fenced=fenced)


def topic(name: str, *leaders: int) -> TopicImage:
    return TopicImage(
        name, ZERO_UUID, tuple(PartitionImage(replicas=(1, 2), isr=(1, 2), leader=leader) for leader in leaders)
    )


class Cluster:
    """Three brokers, the third one fenced; the offsets topic is there."""

    def __init__(self) -> None:
        self.created: list[str] = []
        self.refuses = False
        brokers = {node_id: broker(node_id, fenced=node_id == 3) for node_id in (1, 2, 3)}
        offsets = topic(CONSUMER_OFFSETS_TOPIC, 1, 2, 3, -1)
        self.services = SimpleNamespace(
            image=MetadataImage(brokers=brokers, topics={offsets.name: offsets}),
            groups=SimpleNamespace(topic=CONSUMER_OFFSETS_TOPIC, partition_for=int),
            transactions=SimpleNamespace(
                coordinators=SimpleNamespace(topic=TRANSACTION_STATE_TOPIC, partition_for=lambda _: 0)
            ),
            internal_topics=SimpleNamespace(ensure=self._ensure),
            absences=None,
        )

    async def _ensure(self, name: str) -> None:
        if self.refuses:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.created.append(name)
        image = self.services.image
        self.services.image = MetadataImage(brokers=image.brokers, topics={**image.topics, name: topic(name, 2)})

    def ask(self, version: int, *keys: str, key_type: int = 0) -> FindCoordinatorResponse:
        request = FindCoordinatorRequest(
            key="" if version >= 4 else keys[0], key_type=key_type, coordinator_keys=keys if version >= 4 else []
        )
        ctx = RequestContext(self.services, 10, version, 1, None, "h", "PLAINTEXT")  # type: ignore[arg-type]
        answer = find_coordinator.handle(ctx, request)
        if isinstance(answer, FindCoordinatorResponse):
            return answer

        async def wait() -> FindCoordinatorResponse:
            return await answer

        return asyncio.run(wait())


def test_others_have_their_turn_while_very_many_coordinators_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, turns = Cluster(), Turns(monkeypatch, find_coordinator)
    cluster.services.groups.partition_for = turns.counted(int)
    keys = ["1", "0"] * find_coordinator.KEYS_PER_TURN
    found = cluster.ask(4, *keys).coordinators
    assert [(row.key, row.node_id) for row in found] == [("1", 2), ("0", 1)] * find_coordinator.KEYS_PER_TURN
    assert (turns.calls, turns.most_calls) == (len(keys), find_coordinator.KEYS_PER_TURN)


def test_one_key_is_answered_alone() -> None:
    found = Cluster().ask(3, "1")
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.NONE, 2, "host-2", 9092)
    assert found.coordinators == []


def test_each_key_has_its_coordinator() -> None:
    found = Cluster().ask(6, "0", "1", "2", "3").coordinators
    assert [(item.key, item.node_id, item.host) for item in found] == [
        ("0", 1, "host-1"),
        ("1", 2, "host-2"),
        ("2", -1, ""),
        ("3", -1, ""),
    ]
    assert [item.error_code for item in found] == [0, 0, *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2]


def test_a_topic_that_is_missing_is_made() -> None:
    cluster = Cluster()
    assert cluster.ask(4, "tx", key_type=1).coordinators[0].node_id == 2
    assert cluster.created == [TRANSACTION_STATE_TOPIC]
    assert cluster.ask(2, "tx", key_type=1).node_id == 2
    assert cluster.created == [TRANSACTION_STATE_TOPIC]


def test_a_topic_that_cannot_be_made_is_an_error_for_every_key() -> None:
    cluster = Cluster()
    cluster.refuses = True
    with pytest.raises(ApiError):
        cluster.ask(4, "tx", key_type=1)
    request = FindCoordinatorRequest(coordinator_keys=["a", "b"])
    failed = find_coordinator.failed(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, "why", 4)
    assert [(item.key, item.error_code, item.error_message) for item in failed.coordinators] == [
        ("a", ErrorCode.COORDINATOR_NOT_AVAILABLE, "why"),
        ("b", ErrorCode.COORDINATOR_NOT_AVAILABLE, "why"),
    ]
    assert find_coordinator.failed(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, "why", 3).error_message == "why"


@pytest.mark.parametrize("key_type", [2, 3, -1])
def test_there_are_no_other_coordinators(key_type: int) -> None:
    assert Cluster().ask(6, "g", key_type=key_type).coordinators[0].error_code == ErrorCode.INVALID_REQUEST
    assert Cluster().ask(3, "g", key_type=key_type).error_code == ErrorCode.INVALID_REQUEST
