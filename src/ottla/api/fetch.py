"""Fetch 4-18: read, or wait for something to read.

Sessions as KIP-227 has them; the wait ends with `min_bytes`, with an error, or after `max_wait_ms`. The first batch
comes whole even if it is larger than the limits. From version 13 on topics go by id. Reads are of committed offsets
only: nothing at or above the high watermark leaves; with isolation level 1 nothing at or above the last stable offset,
and the answer names the aborted transactions in what it holds.

A follower's fetch (replica id 0 or more) reads to the log end and says what it has; one of the metadata log goes to the
quorum (`fetch_metadata`). From version 11 on a consumer may read from a replica that does not lead; with
`replica.selector.class` set to Kafka's RackAwareReplicaSelector the leader sends it to one in its rack. Where another
broker leads, the answer says which (version 12), and where it is (16).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from ottla.api import fetch_metadata
from ottla.api.cluster_view import leader_endpoints
from ottla.api.deferred import Deferred, settled
from ottla.model.chunks import Chunks
from ottla.model.errors import ErrorCode, MalformedMessageError
from ottla.runtime.fetch_sessions import SESSION_EPOCH_FINAL, SESSION_EPOCH_INITIAL, SESSION_ID_NONE, FetchSession
from ottla.runtime.fetching import FetchLimits, fetch_limits
from ottla.runtime.opening import LOGS_INLINE_MAX, open_in_turns, unopened
from ottla.runtime.quorum_requests import is_metadata_fetch
from ottla.runtime.remembered_fetches import RememberedFetch
from ottla.runtime.repeated_fetches import MISSES_MAX, RepeatedFetch
from ottla.wire import fetch as codec
from ottla.wire.fetch_repeated import repeated_answer, repeated_request
from ottla.wire.fetch_types import (
    NODE_ENDPOINTS_SINCE,
    RACK_SINCE,
    TOPIC_ID_SINCE,
    FetchPartition,
    FetchRequest,
    PartitionData,
)
from ottla.wire.fields import TopicKey

if TYPE_CHECKING:
    from ottla.api.context import Rememberer, RequestContext
    from ottla.runtime.partition import Partition

REMEMBERED_BYTES_MIN: Final = 512
"""A request from here on, of some 16 partitions, is worth remembering: others are served at once where they can be."""
PLAUSIBLE_BYTES_MAX: Final = 50_000
"""In a longer request it is looked at how many partitions it names: at least 25 bytes are one."""
PARTITION_BYTES_MAX: Final = 320
"""That a partition takes with the name of its topic, and with being forgotten: so there are so many before it is
parsed."""
PARTITIONS_AT_LEAST: Final = 2_000
"""A request may name so many, however few there are."""
Complete: TypeAlias = Callable[
    [list[tuple[TopicKey, list[PartitionData]]]], Sequence[tuple[TopicKey, Sequence[codec.Row]]]
]
"""Makes an answer of what has changed."""
ISOLATION_LEVELS: Final = (0, 1)
"""All records, or those of committed transactions: who asks for something else must not take one for it."""
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def handle(ctx: RequestContext, frame: memoryview, position: int) -> Chunks | Deferred | Awaitable[Chunks]:
    size = len(frame) - position
    if size <= PLAUSIBLE_BYTES_MAX:
        return _serve(ctx, frame, position, codec.parse(frame, position, ctx.api_version))
    _check_plausible(ctx, size // PARTITION_BYTES_MAX)
    request = codec.parse(frame, position, ctx.api_version)
    _check_plausible(ctx, sum(len(partitions) for _, partitions in request.topics))
    return _serve(ctx, frame, position, request)


def _serve(
    ctx: RequestContext, frame: memoryview, position: int, request: FetchRequest, *, is_opened: bool = False
) -> Chunks | Deferred | Awaitable[Chunks]:
    replica_id, wait_ms, bytes_min, bytes_max, isolation, session_id, epoch, topics, forgotten, rack_id, _, _, _ = (
        request
    )
    if replica_id >= 0 and is_metadata_fetch(request):
        return fetch_metadata.handle(ctx, request)
    if isolation not in ISOLATION_LEVELS:
        return _refused(ctx, topics)
    bytes_max = min(bytes_max, ctx.services.config.fetch_max_bytes)
    if epoch == SESSION_EPOCH_FINAL and session_id == SESSION_ID_NONE and not rack_id:
        if (
            len(frame) - position >= REMEMBERED_BYTES_MIN
            and replica_id < 0
            and (remembered := _remembered(ctx, request))
        ):
            order = remembered.take(topics)
            closed = _unopened(ctx, _untouched(remembered.session))
            if closed and not is_opened:
                return _serve_opened(ctx, bytes(frame), position, request, closed)
            limits = fetch_limits((wait_ms, bytes_min, bytes_max, isolation, True))
            return _fetch(ctx, remembered.session, limits, partial(remembered.complete, order))
        found = ctx.services.fetches.fetch_at_once(request, bytes_max)
        if found is not None:
            chunks = _encoded(ctx, ErrorCode.NONE, SESSION_ID_NONE, found)
            if len(chunks) > 1 and len(found) == 1 and ctx.connection is not None:
                _expect_again(ctx, ctx.connection, frame, position, request, found[0][1], chunks)
            return chunks
    closed = _unopened(ctx, [(topic, asked.index) for topic, partitions in topics for asked in partitions])
    if closed and not is_opened:
        return _serve_opened(ctx, bytes(frame), position, request, closed)
    session = _session(ctx, request)
    if isinstance(session, ErrorCode):
        return _encoded(ctx, session, SESSION_ID_NONE, [])
    for topic, partitions in topics:
        session.update(topic, partitions)
    for topic, indexes in forgotten:
        session.forget(topic, indexes)
    is_full = epoch in (SESSION_EPOCH_INITIAL, SESSION_EPOCH_FINAL)
    if not ctx.services.sessions.keeps(session) and not is_full:
        session.close()
        return _encoded(ctx, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, SESSION_ID_NONE, [])
    if not is_full and not session.partitions:
        # Nothing is left to wait for, and whoever asks for something later names all of it again.
        ctx.services.sessions.close(session.id)
        return _encoded(ctx, ErrorCode.NONE, SESSION_ID_NONE, [])
    return _fetch(ctx, session, fetch_limits((wait_ms, bytes_min, bytes_max, isolation, not is_full)))


def _check_plausible(ctx: RequestContext, partitions: int) -> None:
    """Refuse a request for far more partitions than there are, which would hold up everybody else.

    It costs its client the connection: one that has not heard yet that its topics are gone asks for metadata then.
    """
    there = sum(len(topic.partitions) for topic in ctx.services.image.topics.values())
    if partitions > 2 * there + PARTITIONS_AT_LEAST:
        raise MalformedMessageError(f"a fetch of {partitions} partitions or more, where there are {there}")


def _refused(ctx: RequestContext, topics: Sequence[tuple[TopicKey, Sequence[FetchPartition]]]) -> Chunks:
    """The answer to a request that makes no sense, in Kafka's code for it; old versions have it in the rows only."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    rows = [(topic, [PartitionData(asked.index, code) for asked in partitions]) for topic, partitions in topics]
    return _encoded(ctx, code, SESSION_ID_NONE, rows)


def _untouched(session: FetchSession) -> list[tuple[TopicKey, int]]:
    """Where a session is to look without having looked before."""
    return [
        (fetched.topic, fetched.index)
        for fetched in session.dirty
        if (partition := fetched.partition) is None or partition.log_or_none is None
    ]


def _unopened(ctx: RequestContext, places: Sequence[tuple[TopicKey, int]]) -> Sequence[Partition]:
    """The logs that are to be opened before a fetch is served."""
    return unopened(ctx.services.partitions, places) if len(places) > LOGS_INLINE_MAX else ()


async def _serve_opened(
    ctx: RequestContext, frame: bytes, position: int, request: FetchRequest, closed: Sequence[Partition]
) -> Chunks:
    await open_in_turns(closed)
    answer = _serve(ctx, memoryview(frame), position, request, is_opened=True)
    return await settled(answer) if isinstance(answer, list | Deferred) else await answer


def _fetch(
    ctx: RequestContext, session: FetchSession, limits: FetchLimits, complete: Complete | None = None
) -> Chunks | Deferred:
    answers: list[Chunks] = []
    deferred: Deferred | None = None

    def answer(found: list[tuple[TopicKey, list[PartitionData]]]) -> None:
        topics = found if complete is None else complete(found)
        chunks = _encoded(ctx, ErrorCode.NONE, session.id, topics, found)
        if deferred is None:
            answers.append(chunks)
        else:
            deferred.complete(chunks)

    cancel = ctx.services.fetches.fetch(session, limits, answer)
    if cancel is None:
        return answers[0]
    deferred = Deferred(cancel)
    return deferred


def _remembered(ctx: RequestContext, request: FetchRequest) -> RememberedFetch | None:
    """What the connection remembers of its last fetch, if that helps with this one."""
    connection, total = ctx.connection, ctx.services.fetches.remembered
    if connection is None:
        return None
    remembered = connection.remembered_fetch
    if remembered is not None:
        if remembered.fits(ctx.api_version, request.isolation_level):
            return remembered
        if remembered.session.waiting is not None:
            return None
        remembered.close()
        connection.remembered_fetch = None
    if total.partitions >= total.partitions_max:
        return None
    remembered = connection.remembered_fetch = RememberedFetch(total, ctx.api_version, request.isolation_level)
    _take_reader(ctx, request, remembered.session)
    return remembered


def _expect_again(
    ctx: RequestContext,
    connection: Rememberer,
    frame: memoryview,
    position: int,
    request: FetchRequest,
    rows: list[PartitionData],
    chunks: Chunks,
) -> None:
    """Have the next request answered as this one was, if it is for the same partition and there is only that."""
    known, version = connection.repeated_fetch, ctx.api_version
    if known is not None and known.misses < MISSES_MAX:
        known.misses += 1
        return
    repeated, answer = repeated_request(frame, position, version, request), repeated_answer(chunks, version)
    if repeated is None or answer is None or rows[0].aborted:
        return
    shape, asked = repeated
    partition = ctx.services.partitions.leading_or_none(request.topics[0][0], asked.index)
    if partition is not None:
        connection.repeated_fetch = RepeatedFetch(partition, ctx.services.config, request, asked, shape, answer)


def _session(ctx: RequestContext, request: FetchRequest) -> FetchSession | ErrorCode:
    """The session that the request belongs to, by the rules of KIP-227."""
    sessions = ctx.services.sessions
    if request.replica_id >= 0:
        refused = _refusal_of_follower(ctx, request)
        if refused is not None:
            return refused
    epoch = request.session_epoch
    if epoch in (SESSION_EPOCH_INITIAL, SESSION_EPOCH_FINAL):
        if request.session_id != SESSION_ID_NONE:
            sessions.close(request.session_id)
        if epoch == SESSION_EPOCH_FINAL:
            session = FetchSession()
        else:
            now = ctx.services.world.clock.monotonic()
            session = sessions.open(now, is_privileged=request.replica_id >= 0)
        _take_reader(ctx, request, session)
        return session
    resumed = sessions.resume(request.session_id, epoch, ctx.services.world.clock.monotonic())
    if isinstance(resumed, FetchSession):
        if request.replica_id != resumed.replica_id or request.replica_epoch != resumed.replica_epoch:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if resumed.uses_topic_ids != (ctx.api_version >= TOPIC_ID_SINCE):
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if resumed.waiting is not None:
            # The consumer asks anew before it had its answer: the first question gets what there is.
            resumed.waiting.expire()
    return resumed


def _take_reader(ctx: RequestContext, request: FetchRequest, session: FetchSession) -> None:
    """Who reads with a new session, and from where."""
    session.uses_topic_ids = ctx.api_version >= TOPIC_ID_SINCE
    selects = ctx.services.config.replica_selector_class == RACK_AWARE_SELECTOR
    if request.replica_id >= 0:
        session.replica_id, session.replica_epoch = request.replica_id, request.replica_epoch
        session.is_eager = selects
    elif ctx.api_version >= RACK_SINCE:
        session.reads_followers = True
        session.rack = request.rack_id if selects else ""


def _refusal_of_follower(ctx: RequestContext, request: FetchRequest) -> ErrorCode | None:
    """Why a follower gets nothing at all."""
    services = ctx.services
    if request.cluster_id is not None and request.cluster_id != services.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    broker = services.image.brokers.get(request.replica_id)
    if broker is not None and broker.epoch > request.replica_epoch:
        return ErrorCode.STALE_BROKER_EPOCH
    return None


def _encoded(
    ctx: RequestContext,
    error: ErrorCode,
    session_id: int,
    topics: Sequence[tuple[TopicKey, Sequence[codec.Row]]],
    found: Sequence[tuple[TopicKey, Sequence[PartitionData]]] = (),
) -> Chunks:
    """The answer; where `found` says that others lead, with their addresses."""
    version = ctx.api_version
    if found and version >= NODE_ENDPOINTS_SINCE:
        leaders = [data.current_leader for _, rows in found for data in rows if data.current_leader is not None]
        if leaders:
            endpoints = leader_endpoints(ctx.services.image, ctx.listener, leaders)
            return codec.encode_response(version, ctx.correlation_id, error, session_id, topics, 0, endpoints)
    return codec.encode_response(version, ctx.correlation_id, error, session_id, topics)
