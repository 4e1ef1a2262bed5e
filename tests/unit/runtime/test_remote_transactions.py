"""A coordinator on another broker is asked in the words of AddPartitionsToTxn, and what it says is believed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from uuid import UUID

import pytest

from ottla.cli.free_ports import free_port
from ottla.core.controller.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from ottla.core.controller.records import BrokerEndpoint
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TRANSACTION_STATE_TOPIC, TopicPartition
from ottla.runtime.peers import Peers
from ottla.runtime.remote_transactions import RemoteTransactions
from ottla.runtime.tcp_network import TcpNetwork
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.schema import decode, encode
from tests.unit.runtime.far_ends import broker_like, far_end

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
NODE_ID, OTHER = 1, 2
Verify = Callable[..., Awaitable[Mapping[TopicPartition, ErrorCode]] | None]


def remote_of(port: int, *leaders: int) -> tuple[RemoteTransactions, Peers]:
    endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", port, 0)
    states = tuple(PartitionImage(replicas=(1, 2), isr=(leader,), leader=leader) for leader in leaders)
    image = MetadataImage(
        brokers={OTHER: BrokerImage(id=OTHER, epoch=1, incarnation_id=UUID(int=1), endpoints=(endpoint,))},
        topics={TRANSACTION_STATE_TOPIC: TopicImage(TRANSACTION_STATE_TOPIC, UUID(int=5), states)},
    )
    peers = Peers(
        TcpNetwork(),
        client_id="tests",
        image=lambda: image,
        listener_name=lambda: "PLAINTEXT",
        leader=lambda: None,
        voters=lambda: (),
    )
    return RemoteTransactions(peers, lambda: image, node_id=NODE_ID), peers


async def verify(
    remote: RemoteTransactions, *partitions: TopicPartition, add: bool = False
) -> Mapping[TopicPartition, ErrorCode]:
    asked = remote.verify(1, "t", 7, 3, partitions, add=add)
    assert asked is not None
    return await asked


class Coordinator:
    """Answers what it is told to, for partitions that it knows."""

    def __init__(self, codes: Mapping[TopicPartition, int], error_code: int = 0) -> None:
        self.codes = codes
        self.error_code = error_code
        self.asked: list[AddPartitionsToTxnRequest] = []

    async def answer(self, key: int, version: int, body: memoryview) -> bytes:
        request = decode(AddPartitionsToTxnRequest, body, version)
        self.asked.append(request)
        results = [
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[
                    AddPartitionsToTxnTopicResult(
                        name=topic.name,
                        results_by_partition=[
                            AddPartitionsToTxnPartitionResult(
                                partition_index=index,
                                partition_error_code=self.codes[TopicPartition(topic.name, index)],
                            )
                            for index in topic.partitions
                            if TopicPartition(topic.name, index) in self.codes
                        ],
                    )
                    for topic in transaction.topics
                ],
            )
            for transaction in request.transactions
        ]
        return encode(AddPartitionsToTxnResponse(error_code=self.error_code, results_by_transaction=results), version)


@pytest.mark.parametrize("add", [False, True])
def test_a_question_and_its_answer(add: bool) -> None:
    async def story() -> None:
        coordinator = Coordinator({A0: 0, A1: ErrorCode.TRANSACTION_ABORTABLE, B0: 9999})
        async with far_end(broker_like({24: (0, 5)}, coordinator.answer)) as port:
            remote, peers = remote_of(port, NODE_ID, OTHER)
            assert await verify(remote, B0, A1, A0, add=add) == {
                A0: ErrorCode.NONE,
                A1: ErrorCode.TRANSACTION_ABORTABLE,
                B0: ErrorCode.UNKNOWN_SERVER_ERROR,
            }
            peers.close()
        (transaction,) = coordinator.asked[0].transactions
        assert (transaction.transactional_id, transaction.producer_id, transaction.producer_epoch) == ("t", 7, 3)
        assert transaction.verify_only is not add
        assert [(topic.name, topic.partitions) for topic in transaction.topics] == [("a", [0, 1]), ("b", [0])]

    asyncio.run(story())


def test_what_is_here_or_nowhere_is_not_asked() -> None:
    async def story() -> None:
        remote, peers = remote_of(free_port(), NODE_ID, OTHER, -1)
        assert remote.verify(0, "t", 7, 3, [A0], add=False) is None
        assert remote.verify(9, "t", 7, 3, [A0], add=False) is None
        with pytest.raises(ApiError) as refused:
            remote.verify(2, "t", 7, 3, [A0], add=False)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        peers.close()

    asyncio.run(story())


def test_silence_is_not_consent() -> None:
    async def story() -> None:
        remote, peers = remote_of(free_port(), NODE_ID, OTHER)
        await refused_with(ErrorCode.NETWORK_EXCEPTION, verify(remote, A0))
        peers.close()
        old = Coordinator({A0: 0})
        async with far_end(broker_like({24: (0, 3)}, old.answer)) as port:
            remote, peers = remote_of(port, NODE_ID, OTHER)
            await refused_with(ErrorCode.NETWORK_EXCEPTION, verify(remote, A0))
            peers.close()
        forgetful, refusing = Coordinator({}), Coordinator({}, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
        async with far_end(broker_like({24: (0, 5)}, forgetful.answer)) as port:
            remote, peers = remote_of(port, NODE_ID, OTHER)
            assert await verify(remote, A0) == {A0: ErrorCode.UNKNOWN_SERVER_ERROR}
            peers.close()
        async with far_end(broker_like({24: (0, 5)}, refusing.answer)) as port:
            remote, peers = remote_of(port, NODE_ID, OTHER)
            await refused_with(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, verify(remote, A0))
            peers.close()

    asyncio.run(story())


async def refused_with(code: ErrorCode, answer: Awaitable[object]) -> None:
    with pytest.raises(ApiError) as refused:
        await answer
    assert refused.value.code is code
