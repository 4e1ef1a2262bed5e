"""AddPartitionsToTxn 0-5: partitions that a transaction is about to write to.

Up to version 3 it comes from a client, about its one transaction. From version 4 on it comes from a broker that has
records of several transactions at hand and asks whether they belong there (`verify_only`), or adds the partitions for
clients that leave it to the broker (KIP-890). All partitions of a transaction are added or none: if one is unknown, the
others are answered OPERATION_NOT_ATTEMPTED. Fenced producers hear PRODUCER_FENCED from version 2 on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.api.cluster_view import INTERNAL_TOPICS
from ottla.api.producer_fencing import fencing_code
from ottla.api.turns import in_turns
from ottla.core.transactions.commands import AddPartitions, VerifyPartitions
from ottla.core.transactions.transaction import EPOCH_PER_TRANSACTION
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.runtime.coordinators import then
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

FENCED_SINCE = 2
FROM_BROKERS_SINCE = 4
TRANSACTIONS_PER_TURN_MAX = 200
PARTITIONS_PER_TURN_MAX = 1000

Topics: TypeAlias = Sequence[AddPartitionsToTxnTopic]
CodeOf: TypeAlias = Callable[[str, int], ErrorCode]
"""Says what became of a partition."""


def handle(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    if ctx.api_version >= FROM_BROKERS_SINCE:
        return _from_broker(ctx, request.transactions)
    topics = request.v3_and_below_topics
    if problems := _problems(ctx, topics, from_client=True):
        return _client_response(topics, _with_problems(problems))
    command = AddPartitions(
        _checked_id(request.v3_and_below_transactional_id),
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        _partitions(topics),
    )
    answer = ctx.services.transactions.submit(command.transactional_id, command)
    return then(answer, lambda _: _client_response(topics, _always(ErrorCode.NONE)))


def failed(
    request: AddPartitionsToTxnRequest, code: ErrorCode, _message: str, version: int
) -> AddPartitionsToTxnResponse:
    if version >= FROM_BROKERS_SINCE:
        return AddPartitionsToTxnResponse(error_code=code)
    return _client_response(request.v3_and_below_topics, _always(fencing_code(code, version, since=FENCED_SINCE)))


async def _from_broker(
    ctx: RequestContext, transactions: Sequence[AddPartitionsToTxnTransaction]
) -> AddPartitionsToTxnResponse:
    """Ask for many of them, then wait: they do not wait for each other."""
    results = []
    async for some in in_turns(_turns(transactions), 1):
        asked = [_ask(ctx, transaction) for transaction in some]
        for transaction, answer in zip(some, asked, strict=True):
            topic_results = _topic_results(transaction.topics, await _code_of(answer))
            results.append(
                AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=topic_results)
            )
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _turns(
    transactions: Sequence[AddPartitionsToTxnTransaction],
) -> Iterator[list[AddPartitionsToTxnTransaction]]:
    """What is asked before others have their turn: some transactions, or one of very many partitions."""
    some: list[AddPartitionsToTxnTransaction] = []
    partitions = 0
    for transaction in transactions:
        added = sum(len(topic.partitions) for topic in transaction.topics)
        if some and (len(some) >= TRANSACTIONS_PER_TURN_MAX or partitions + added > PARTITIONS_PER_TURN_MAX):
            yield some
            some, partitions = [], 0
        some.append(transaction)
        partitions += added
    if some:
        yield some


def _ask(ctx: RequestContext, transaction: AddPartitionsToTxnTransaction) -> CodeOf | Awaitable[CodeOf]:
    if problems := _problems(ctx, transaction.topics, from_client=False):
        return _with_problems(problems)
    partitions = _partitions(transaction.topics)
    producer = transaction.producer_id, transaction.producer_epoch
    submit = ctx.services.transactions.submit
    try:
        transactional_id = _checked_id(transaction.transactional_id)
        if transaction.verify_only:
            verify = VerifyPartitions(transactional_id, *producer, partitions, add=False)
            return then(
                submit(transactional_id, verify), lambda codes: lambda topic, index: codes[TopicPartition(topic, index)]
            )
        add = AddPartitions(transactional_id, *producer, partitions, EPOCH_PER_TRANSACTION)
        return then(submit(transactional_id, add), lambda _: _always(ErrorCode.NONE))
    except ApiError as error:
        return _always(error.code)


async def _code_of(answer: CodeOf | Awaitable[CodeOf]) -> CodeOf:
    if not isinstance(answer, Awaitable):
        return answer
    try:
        return await answer
    except ApiError as error:
        return _always(error.code)


def _checked_id(transactional_id: str) -> str:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty.")
    return transactional_id


def _partitions(topics: Topics) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)


def _problems(ctx: RequestContext, topics: Topics, *, from_client: bool) -> dict[TopicPartition, ErrorCode]:
    """The partitions that a transaction cannot write to. Clients have no business in internal topics."""
    known, problems = ctx.services.image.topics, {}
    for topic in topics:
        name, found = topic.name, known.get(topic.name)
        if from_client and name in INTERNAL_TOPICS:
            refused, code = topic.partitions, ErrorCode.TOPIC_AUTHORIZATION_FAILED
        else:
            count, code = 0 if found is None else len(found.partitions), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = [index for index in topic.partitions if not 0 <= index < count]
        problems.update({TopicPartition(name, index): code for index in refused})
    return problems


def _with_problems(problems: dict[TopicPartition, ErrorCode]) -> CodeOf:
    return lambda topic, index: problems.get(TopicPartition(topic, index), ErrorCode.OPERATION_NOT_ATTEMPTED)


def _always(code: ErrorCode) -> CodeOf:
    return lambda topic, index: code


def _client_response(topics: Topics, code_of: CodeOf) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(topics, code_of))


def _topic_results(topics: Topics, code_of: CodeOf) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index, partition_error_code=code_of(topic.name, index)
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
