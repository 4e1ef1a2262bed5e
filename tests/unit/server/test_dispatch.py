"""Every request gets the answer of its API and version, and a failure is told in the API's own words."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from ottla.api.context import RequestContext
from ottla.api.deferred import Deferred
from ottla.api.entry import Api
from ottla.model.chunks import Chunks
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.model.limits import IN_FLIGHT_REQUESTS_MAX
from ottla.runtime.remembered_fetches import RememberedFetch
from ottla.runtime.repeated_fetches import RepeatedFetch
from ottla.server.dispatch import Dispatcher, has_many_items
from ottla.wire.headers import encode_request, parse_response_header, request_header
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.wire.schema import Message, decode
from tests.unit.server.conftest import Run
from tests.unit.server.loopback import Serve, ThreadOffload, make_services, until

CORRELATION_ID = 77


class Caller:
    """A connection as dispatch sees it."""

    host = "192.0.2.1"
    listener = "PLAINTEXT"
    principal = "User:ANONYMOUS"

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.remembered_fetch: RememberedFetch | None = None
        self.repeated_fetch: RepeatedFetch | None = None

    def refuse(self, reason: str) -> None:
        self.refused.append(reason)


def failure(request: CreatePartitionsRequest, code: ErrorCode, message: str, _: int) -> CreatePartitionsResponse:
    return answer_to(request, code, message)


def answer_to(
    request: CreatePartitionsRequest, code: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> CreatePartitionsResponse:
    results = [
        CreatePartitionsTopicResult(name=topic.name, error_code=code, error_message=message) for topic in request.topics
    ]
    return CreatePartitionsResponse(throttle_time_ms=0, results=results)


def create_partitions(handler: Callable[..., Any], **options: Any) -> Api:
    return Api(
        key=37,
        name="CreatePartitions",
        min_version=0,
        max_version=3,
        handler=handler,
        request=CreatePartitionsRequest,
        response=CreatePartitionsResponse,
        **{"error_response": failure, **options},
    )


API_VERSIONS = Api(
    key=18,
    name="ApiVersions",
    min_version=0,
    max_version=4,
    handler=lambda context, request: ApiVersionsResponse(
        error_code=0, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)]
    ),
    request=ApiVersionsRequest,
    response=ApiVersionsResponse,
)


def create_request(version: int = 3, topics: int = 1) -> memoryview:
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=f"t{i}", count=2, assignments=None) for i in range(topics)],
        timeout_ms=1000,
        validate_only=False,
    )
    return memoryview(bytearray(encode_request(request, version, CORRELATION_ID, "a client")))


def decoded(chunks: object, version: int = 3) -> CreatePartitionsResponse:
    assert isinstance(chunks, list)
    (data,) = chunks
    correlation_id, position = parse_response_header(37, version, data)
    assert correlation_id == CORRELATION_ID
    return decode(CreatePartitionsResponse, data, version, position)


async def answered(result: Chunks | Deferred | None) -> Chunks:
    assert isinstance(result, Deferred)
    assert not result.done
    done = asyncio.Event()
    result.listen(done.set)
    async with asyncio.timeout(10):
        await done.wait()
    return result.chunks


def dispatch_once(handler: Callable[..., Any], **options: Any) -> tuple[Chunks | Deferred | None, Caller, Dispatcher]:
    dispatcher = Dispatcher([create_partitions(handler, **options)], make_services())
    caller = Caller()
    return dispatcher.dispatch(caller, create_request()), caller, dispatcher


def test_a_fetch_that_the_connection_knows_is_counted_like_any_other() -> None:
    def handler(_context: RequestContext, _frame: memoryview, _position: int) -> Chunks:
        return [b"the ordinary way"]

    services = make_services()
    services.config = cast(BrokerConfig, object())
    dispatcher = Dispatcher(
        [Api(key=1, name="Fetch", min_version=4, max_version=18, handler=handler, hot=True)], services
    )
    answers: list[Chunks | None] = [[b"known"], None]
    caller = Caller()
    caller.repeated_fetch = cast(RepeatedFetch, SimpleNamespace(answer=lambda frame, config: answers.pop(0)))
    frame = memoryview(request_header(1, 12, CORRELATION_ID, None) + b"body")
    assert dispatcher.dispatch(caller, frame) == [b"known"]
    assert dispatcher.dispatch(caller, frame) == [b"the ordinary way"]
    assert services.metrics.requests[1] == 2


@pytest.mark.parametrize("version", range(4))
def test_a_plain_handler_answers_at_once(version: int) -> None:
    seen: list[RequestContext] = []

    def handler(context: RequestContext, request: CreatePartitionsRequest) -> Message:
        seen.append(context)
        return answer_to(request)

    services = make_services()
    dispatcher = Dispatcher([create_partitions(handler)], services)
    result = dispatcher.dispatch(Caller(), create_request(version))
    assert decoded(result, version).results[0].name == "t0"
    (context,) = seen
    assert (context.api_key, context.api_version, context.client_id) == (37, version, "a client")
    assert (context.peer_host, context.listener, context.services) == ("192.0.2.1", "PLAINTEXT", services)
    assert services.metrics.requests[37] == 1


def test_a_coroutine_answers_later(run: Run) -> None:
    async def main() -> None:
        async def handler(_: RequestContext, request: CreatePartitionsRequest) -> Message:
            await asyncio.sleep(0)
            return answer_to(request)

        result, _, dispatcher = dispatch_once(handler)
        assert decoded(await answered(result)).results[0].error_code == 0
        await dispatcher.close()

    run(main)


def test_a_hot_handler_gets_the_frame_itself() -> None:
    def handler(context: RequestContext, frame: memoryview, position: int) -> Chunks:
        frame[position : position + 4] = b"seen"
        return [struct.pack(">i", context.correlation_id), bytes(frame[position:])]

    api = Api(key=0, name="Produce", min_version=3, max_version=13, handler=handler, hot=True)
    frame = bytearray(request_header(0, 9, CORRELATION_ID, None) + b"body and more")
    answer = Dispatcher([api], make_services()).dispatch(Caller(), memoryview(frame))
    assert answer == [struct.pack(">i", CORRELATION_ID), b"seen and more"]
    assert frame.endswith(b"seen and more")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_refusal_is_told_with_its_code(run: Run, is_async: bool) -> None:
    async def main() -> None:
        def refuse(*_: object) -> Message:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, "too few")

        async def refuse_later(*_: object) -> Message:
            return refuse()

        result, caller, dispatcher = dispatch_once(refuse_later if is_async else refuse)
        response = decoded(await answered(result) if is_async else result)
        assert (response.results[0].error_code, response.results[0].error_message) == (37, "too few")
        assert not caller.refused
        await dispatcher.close()

    run(main)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_mistake_of_ours_is_logged_and_told_as_such(run: Run, is_async: bool) -> None:
    async def main() -> None:
        def fail(*_: object) -> Message:
            raise KeyError("a mistake")

        async def fail_later(*_: object) -> Message:
            return fail()

        with capture_logs() as lines:
            result, caller, dispatcher = dispatch_once(fail_later if is_async else fail)
            response = decoded(await answered(result) if is_async else result)
        assert response.results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert "a mistake" not in (response.results[0].error_message or "")
        assert [(line["event"], line["api"]) for line in lines] == [("request failed", "CreatePartitions")]
        assert isinstance(lines[0]["exc_info"], KeyError)
        assert not caller.refused
        await dispatcher.close()

    run(main)


@pytest.mark.parametrize("error", [ApiError(ErrorCode.INVALID_REQUEST, "no"), KeyError("oops")])
def test_without_an_error_answer_the_connection_closes(error: Exception) -> None:
    def fail(*_: object) -> Message:
        raise error

    with capture_logs():
        result, caller, _ = dispatch_once(fail, error_response=None)
    assert not result
    assert len(caller.refused) == 1


def test_an_error_answer_that_fails_closes_the_connection() -> None:
    def fail(*_: object) -> Message:
        raise KeyError("oops")

    with capture_logs() as lines:
        result, caller, _ = dispatch_once(fail, error_response=fail)
    assert not result
    assert len(caller.refused) == 1
    assert len(lines) == 2


def test_an_answer_that_cannot_be_encoded_is_a_mistake_of_ours() -> None:
    def handler(_: RequestContext, request: CreatePartitionsRequest) -> Message:
        return CreatePartitionsResponse(throttle_time_ms="soon", results=[])  # type: ignore[arg-type]

    with capture_logs():
        result, _, _ = dispatch_once(handler)
    assert decoded(result).results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("error", [KeyError("oops"), MalformedMessageError("no records"), OSError("disk")])
def test_a_hot_handler_that_fails_closes_the_connection(error: Exception) -> None:
    def handler(*_: object) -> Chunks:
        raise error

    api = Api(key=0, name="Produce", min_version=3, max_version=13, handler=handler, hot=True)
    caller = Caller()
    frame = memoryview(bytearray(request_header(0, 9, 1, "c")))
    services = make_services()
    with capture_logs() as lines:
        assert not Dispatcher([api], services).dispatch(caller, frame)
    assert len(caller.refused) == 1
    assert len(lines) == (0 if isinstance(error, MalformedMessageError) else 1)
    assert services.metrics.request_errors[0] == 1


@pytest.mark.parametrize("cut", [1, 5, 12, 25, -1])
def test_a_malformed_request_closes_the_connection(cut: int) -> None:
    dispatcher = Dispatcher([create_partitions(lambda _, request: answer_to(request))], make_services())
    caller = Caller()
    assert dispatcher.dispatch(caller, create_request()[:cut]) is None
    assert len(caller.refused) == 1
    assert "malformed" in caller.refused[0]


def test_trailing_bytes_are_malformed() -> None:
    dispatcher = Dispatcher([create_partitions(lambda _, request: answer_to(request))], make_services())
    caller = Caller()
    assert dispatcher.dispatch(caller, memoryview(bytearray(bytes(create_request()) + b"x"))) is None
    assert len(caller.refused) == 1


@pytest.mark.parametrize(("key", "version"), [(37, 4), (37, -1), (0, 9), (999, 0), (-1, 0)])
def test_what_is_not_served_closes_the_connection(key: int, version: int) -> None:
    services = make_services()
    dispatcher = Dispatcher([create_partitions(lambda *_: None), API_VERSIONS], services)
    caller = Caller()
    frame = memoryview(bytearray(struct.pack(">hhih", key, version, 1, -1) + b"\0\0\0\0"))
    assert dispatcher.dispatch(caller, frame) is None
    assert len(caller.refused) == 1
    assert services.metrics.requests_unsupported == 1


@pytest.mark.parametrize("version", [5, 30_000, -1])
def test_a_newer_client_learns_which_api_versions_there_are(version: int) -> None:
    """It asks again in a version that it finds in this answer, which has the form of version 0."""
    caller = Caller()
    frame = memoryview(bytearray(request_header(18, version, CORRELATION_ID, "newer") + b"\x05what?\x02\0"))
    result = Dispatcher([API_VERSIONS], make_services()).dispatch(caller, frame)
    assert isinstance(result, list)
    assert result == [struct.pack(">ihihhh", CORRELATION_ID, 35, 1, 18, 0, 4)]
    assert not caller.refused


@pytest.mark.parametrize(("topics_answered", "threads"), [(10_000, 2), (10, 1)], ids=["long answer", "short answer"])
def test_a_long_request_is_decoded_and_its_long_answer_encoded_in_a_thread(
    run: Run, topics_answered: int, threads: int
) -> None:
    async def main() -> None:
        def handler(_: RequestContext, request: CreatePartitionsRequest) -> Message:
            assert len(request.topics) == 10_000
            return answer_to(CreatePartitionsRequest(topics=request.topics[:topics_answered], timeout_ms=0))

        services = make_services()
        dispatcher = Dispatcher([create_partitions(handler)], services)
        result = dispatcher.dispatch(Caller(), create_request(topics=10_000))
        assert len(decoded(await answered(result)).results) == topics_answered
        assert isinstance(services.world.offload, ThreadOffload)
        assert services.world.offload.calls == threads
        await dispatcher.close()

    run(main)


def test_a_long_request_that_is_malformed_closes_the_connection(run: Run) -> None:
    async def main() -> None:
        dispatcher = Dispatcher([create_partitions(lambda _, request: answer_to(request))], make_services())
        caller = Caller()
        result = dispatcher.dispatch(caller, create_request(topics=10_000)[:-3])
        assert await answered(result) == []
        assert len(caller.refused) == 1
        await dispatcher.close()

    run(main)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_heavy_answer_is_encoded_in_a_thread(run: Run, is_async: bool) -> None:
    async def main() -> None:
        def handler(_: RequestContext, request: CreatePartitionsRequest) -> Message:
            return answer_to(request)

        async def handler_later(context: RequestContext, request: CreatePartitionsRequest) -> Message:
            return handler(context, request)

        services = make_services()
        dispatcher = Dispatcher([create_partitions(handler_later if is_async else handler, heavy=True)], services)
        result = dispatcher.dispatch(Caller(), create_request(topics=1000))
        assert len(decoded(await answered(result)).results) == 1000
        assert isinstance(services.world.offload, ThreadOffload)
        assert services.world.offload.calls == 1
        small = dispatcher.dispatch(Caller(), create_request(topics=2))
        assert len(decoded(await answered(small) if is_async else small).results) == 2
        assert services.world.offload.calls == 1
        await dispatcher.close()

    run(main)


def test_items_are_counted_through_all_levels() -> None:
    def answer(topics: int, assignments: int) -> Message:
        return CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name="t", count=1, assignments=[{} for _ in range(assignments)])  # type: ignore[misc]
                for _ in range(topics)
            ],
            timeout_ms=0,
            validate_only=False,
        )

    assert not has_many_items(answer(10, 9), 100)
    assert has_many_items(answer(10, 10), 100)
    assert has_many_items(answer(101, 0), 100)
    assert not has_many_items(answer(100, 0), 100)


def test_work_goes_on_when_its_client_has_left(run: Run, serve: Serve) -> None:
    """Half a decision is worse than one that nobody hears of."""

    async def main() -> None:
        finished = asyncio.Event()
        begun = asyncio.Event()
        go_on = asyncio.Event()

        async def handler(_: RequestContext, request: CreatePartitionsRequest) -> Message:
            begun.set()
            await go_on.wait()
            finished.set()
            return answer_to(request)

        services = make_services()
        dispatcher = Dispatcher([create_partitions(handler)], services)
        async with serve(dispatcher.dispatch, services=services) as server:
            client = await server.connect()
            await client.ask(bytes(create_request()))
            await begun.wait()
            client.close()
            await until(lambda: not server.listener.connections)
            go_on.set()
            await finished.wait()
        await dispatcher.close()

    run(main)


def test_closing_cancels_what_is_still_worked_on(run: Run) -> None:
    async def main() -> None:
        async def handler(*_: object) -> Message:
            await asyncio.Event().wait()
            raise AssertionError("nobody sets that event")

        result, caller, dispatcher = dispatch_once(handler)
        await dispatcher.close()
        assert isinstance(result, Deferred)
        assert not result.done
        assert not caller.refused

    run(main)


@pytest.mark.parametrize(
    ("heavy", "topics", "at_a_time"),
    [(False, 1, IN_FLIGHT_REQUESTS_MAX), (True, 1, 4), (False, 20_000, 1)],
    ids=["usual", "heavy answer", "long request"],
)
def test_one_client_cannot_have_many_large_answers_made_at_a_time(
    run: Run, serve: Serve, heavy: bool, topics: int, at_a_time: int
) -> None:
    """What they cost until they are sent is the broker's memory, and a client that asks and never reads is free to."""

    async def main() -> None:
        begun = 0
        go_on = asyncio.Event()

        async def handler(_: RequestContext, request: CreatePartitionsRequest) -> Message:
            nonlocal begun
            begun += 1
            await go_on.wait()
            return answer_to(request)

        services = make_services()
        dispatcher = Dispatcher([create_partitions(handler, heavy=heavy)], services)
        request, total = bytes(create_request(topics=topics)), at_a_time + 8
        async with serve(dispatcher.dispatch, services=services) as server, await server.connect() as client:
            asking = asyncio.ensure_future(client.ask(*[request] * total))
            await until(lambda: server.metrics.reads_paused == 1 and begun == at_a_time)
            assert len(dispatcher._tasks) == at_a_time
            go_on.set()
            assert len({bytes(answer) for answer in await client.answers(total)}) == 1
            await asking
        await dispatcher.close()

    run(main)
