"""TxnOffsetCommit 0-5: a group remembers up to where it has consumed, if a transaction commits.

The transaction coordinator is asked first whether the transaction is open and has the group's partition of the offsets
topic in it, unless that is turned off. Producers of version 5 (KIP-890) do not add that partition themselves: it is
added on the way. A partition that is not there is refused by itself. Versions 0 and 1 do not know that a coordinator
may be loading, and are told that it is not available; versions before 4 do not know TRANSACTION_ABORTABLE, and get
INVALID_TXN_STATE. Fenced producers hear INVALID_PRODUCER_EPOCH in every version.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from ottla.core.groups.offset_commands import CommitTransactionalOffsets, NewOffset
from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import TopicPartition
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.core.controller.image import TopicImage

ADDS_PARTITION_SINCE: Final = 5
KNOWS_LOADING_SINCE: Final = 2
ABORTABLE_SINCE: Final = 4


class OffsetsToCommit:
    """Offsets of partitions that are there, beside the parts of the answer that wait for them; others are refused."""

    __slots__ = ("_pending", "offsets")

    def __init__(self) -> None:
        self.offsets: list[NewOffset] = []
        self._pending: list[TxnOffsetCommitResponsePartition] = []
        """The results of `offsets`, in the same order."""

    def take(
        self, topic: TopicImage | None, asked: Iterable[TxnOffsetCommitRequestPartition]
    ) -> list[TxnOffsetCommitResponsePartition]:
        """Take in the partitions of one topic, and give the results that stand for them in the answer."""
        results = []
        count = 0 if topic is None else len(topic.partitions)
        for partition in asked:
            index = partition.partition_index
            result = TxnOffsetCommitResponsePartition(partition_index=index)
            results.append(result)
            if topic is None or not 0 <= index < count:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            self._pending.append(result)
            self.offsets.append(
                NewOffset(
                    topic.name,
                    topic.id,
                    index,
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata,
                )
            )
        return results

    def settle(self, codes: Sequence[ErrorCode]) -> None:
        """What the coordinator says of each of the offsets."""
        for result, code in zip(self._pending, codes, strict=True):
            result.error_code = code


def handle(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    image, wanted = ctx.services.image, OffsetsToCommit()
    response = TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=asked.name, partitions=wanted.take(image.topics.get(asked.name), asked.partitions)
            )
            for asked in request.topics
        ]
    )
    if not wanted.offsets:
        return response

    def with_codes(codes: Sequence[ErrorCode]) -> TxnOffsetCommitResponse:
        wanted.settle(codes)
        return response

    def refused(error: ApiError) -> TxnOffsetCommitResponse:
        ctx.services.metrics.request_errors[ctx.api_key] += 1
        return with_codes([_known_code(error.code, ctx.api_version)] * len(wanted.offsets))

    try:
        codes = _commit(ctx, request, wanted.offsets)
    except ApiError as error:
        return refused(error)
    return with_codes(codes) if isinstance(codes, list) else _answer_when(codes, with_codes, refused)


async def _answer_when(
    codes: Awaitable[list[ErrorCode]],
    with_codes: Callable[[Sequence[ErrorCode]], TxnOffsetCommitResponse],
    refused: Callable[[ApiError], TxnOffsetCommitResponse],
) -> TxnOffsetCommitResponse:
    try:
        return with_codes(await codes)
    except ApiError as error:
        return refused(error)


def _commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest, offsets: list[NewOffset]
) -> list[ErrorCode] | Awaitable[list[ErrorCode]]:
    """What becomes of each offset. ApiError: why none of them is taken."""
    if not request.group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "name the group")
    groups = ctx.services.groups
    adds = ctx.api_version >= ADDS_PARTITION_SINCE
    verified = None
    if adds or ctx.services.config.transaction_partition_verification_enable:
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "A transactional id must not be empty.")
        verified = ctx.services.transactions.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [TopicPartition(groups.topic, groups.partition_for(request.group_id))],
            add=adds,
        )

    if isinstance(verified, Awaitable):
        # Its transaction may end meanwhile: a marker that comes before the offsets takes the permission away.
        guard = groups.guard(request.group_id, request.producer_id, request.producer_epoch)
        return _commit_when(verified, guard, ctx, request, offsets)
    _check(verified)
    # In the same turn: the transaction cannot end in between.
    return groups.submit(request.group_id, _command(ctx, request, offsets))


async def _commit_when(
    verified: Awaitable[Mapping[TopicPartition, ErrorCode] | None],
    guard: Callable[[], None],
    ctx: RequestContext,
    request: TxnOffsetCommitRequest,
    offsets: list[NewOffset],
) -> list[ErrorCode]:
    _check(await verified)
    guard()
    # In the same turn: nothing comes in between.
    answer = ctx.services.groups.submit(request.group_id, _command(ctx, request, offsets))
    return answer if isinstance(answer, list) else await answer


def _check(verified: Mapping[TopicPartition, ErrorCode] | None) -> None:
    """One partition was asked about: what holds for it holds for the request."""
    for code in (verified or {}).values():
        if code is not ErrorCode.NONE:
            raise ApiError(code)


def _command(
    ctx: RequestContext, request: TxnOffsetCommitRequest, offsets: list[NewOffset]
) -> CommitTransactionalOffsets:
    return CommitTransactionalOffsets(
        group_id=request.group_id,
        offsets=offsets,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        member_id=request.member_id,
        generation_id=request.generation_id,
        group_instance_id=request.group_instance_id,
        version=ctx.api_version,
    )


def failed(request: TxnOffsetCommitRequest, code: ErrorCode, _message: str, version: int) -> TxnOffsetCommitResponse:
    known = _known_code(code, version)
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=known)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _known_code(code: ErrorCode, version: int) -> ErrorCode:
    """A refusal of one of the two coordinators as producers of this version expect it here."""
    if code is ErrorCode.NETWORK_EXCEPTION:
        # The transaction's coordinator was not reached. It is no answer that clients expect here: they would give up.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < KNOWS_LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if code is ErrorCode.PRODUCER_FENCED:
        # The transaction coordinator's word for it; from here producers expect the other one, as they do from Produce.
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return code
