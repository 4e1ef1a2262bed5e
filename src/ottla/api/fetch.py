"""Fetch 4-18: read, or wait for something to read.

Sessions as KIP-227 has them; the wait ends with `min_bytes`, with an error, or after `max_wait_ms`. The first batch
comes whole even if it is larger than the limits. From version 13 on topics go by id. Reads are of committed offsets
only: nothing at or above the high watermark leaves; with isolation level 1 nothing at or above the last stable offset,
and the answer names the aborted transactions in what it holds. A follower's fetch (replica id 0 or more) is refused:
there is no other broker yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.model.errors import ErrorCode
from ottla.runtime.fetch_sessions import SESSION_EPOCH_FINAL, SESSION_EPOCH_INITIAL, SESSION_ID_NONE, FetchSession
from ottla.runtime.fetching import FetchLimits
from ottla.wire import fetch as codec
from ottla.wire.fetch_types import FetchRequest, PartitionData
from ottla.wire.fields import TopicKey

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(ctx: RequestContext, frame: memoryview, position: int) -> Chunks | Deferred:
    request = codec.parse(frame, position, ctx.api_version)
    bytes_max = min(request.max_bytes, ctx.services.config.fetch_max_bytes)
    if request.session_epoch == SESSION_EPOCH_FINAL and request.session_id == SESSION_ID_NONE:
        topics = ctx.services.fetches.fetch_at_once(request, bytes_max)
        if topics is not None:
            return _encoded(ctx, ErrorCode.NONE, SESSION_ID_NONE, topics)
    session = _session(ctx, request)
    if isinstance(session, ErrorCode):
        return _encoded(ctx, session, SESSION_ID_NONE, [])
    is_full = request.session_epoch in (SESSION_EPOCH_INITIAL, SESSION_EPOCH_FINAL)
    for topic, partitions in request.topics:
        session.update(topic, partitions)
    for topic, indexes in request.forgotten:
        session.forget(topic, indexes)
    limits = FetchLimits(
        request.max_wait_ms,
        request.min_bytes,
        bytes_max,
        request.isolation_level,
        not is_full,
    )
    return _fetch(ctx, session, limits)


def _fetch(ctx: RequestContext, session: FetchSession, limits: FetchLimits) -> Chunks | Deferred:
    answers: list[Chunks] = []
    deferred: Deferred | None = None

    def answer(topics: list[tuple[TopicKey, list[PartitionData]]]) -> None:
        chunks = _encoded(ctx, ErrorCode.NONE, session.id, topics)
        if deferred is None:
            answers.append(chunks)
        else:
            deferred.complete(chunks)

    cancel = ctx.services.fetches.fetch(session, limits, answer)
    if cancel is None:
        return answers[0]
    deferred = Deferred(cancel)
    return deferred


def _session(ctx: RequestContext, request: FetchRequest) -> FetchSession | ErrorCode:
    """The session that the request belongs to, by the rules of KIP-227."""
    if request.replica_id >= 0:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    sessions = ctx.services.sessions
    epoch = request.session_epoch
    if epoch in (SESSION_EPOCH_INITIAL, SESSION_EPOCH_FINAL):
        if request.session_id != SESSION_ID_NONE:
            sessions.close(request.session_id)
        return FetchSession() if epoch == SESSION_EPOCH_FINAL else sessions.open(ctx.services.world.clock.monotonic())
    session = sessions.resume(request.session_id, epoch, ctx.services.world.clock.monotonic())
    if isinstance(session, FetchSession) and session.waiting is not None:
        # The consumer asks anew before it had its answer: the first question gets what there is.
        session.waiting.expire()
    return session


def _encoded(
    ctx: RequestContext, error: ErrorCode, session_id: int, topics: list[tuple[TopicKey, list[PartitionData]]]
) -> Chunks:
    return codec.encode_response(ctx.api_version, ctx.correlation_id, error, session_id, topics)
