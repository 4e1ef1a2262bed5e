"""What one node hands on is served by another as if its client had asked there: same words, same principal, once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api import envelope
from ottla.api.context import RequestContext, Services
from ottla.api.deferred import Deferred
from ottla.api.entry import Api, declared_api
from ottla.model.chunks import Chunks
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.controller_channel import encode_host, encode_principal
from ottla.runtime.metrics import Metrics
from ottla.runtime.remembered_fetches import RememberedFetch
from ottla.runtime.repeated_fetches import RepeatedFetch
from ottla.server.dispatch import Dispatcher
from ottla.wire.headers import encode_request, encode_response, parse_response_header
from ottla.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.wire.schema import decode, encode

CORRELATION_ID = 4711


class Channel:
    """The way to a controller; `answer` is what comes back."""

    def __init__(self, *, is_here: bool) -> None:
        self.is_here = is_here
        self.forwarded: list[tuple[bytes, str, str]] = []
        self.answer: bytes | Exception | None = None

    async def forward(self, frame: bytes, *, principal: str, host: str) -> bytes | None:
        self.forwarded.append((frame, principal, host))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Caller:
    """A client's connection."""

    host = "192.0.2.7"
    listener = "PLAINTEXT"
    principal = "User:ann"

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.remembered_fetch: RememberedFetch | None = None
        self.repeated_fetch: RepeatedFetch | None = None

    def refuse(self, reason: str) -> None:
        self.refused.append(reason)


class Offload:
    async def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)


def failed(_request: UpdateFeaturesRequest, code: ErrorCode, message: str, _version: int) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=code, error_message=message)


class Node:
    """A dispatcher with an API that is forwarded, one that is not, and Envelope."""

    def __init__(self, channel: Channel | None) -> None:
        self.seen: list[RequestContext] = []
        self.refusal: Exception | None = None
        self.channel = channel
        services = SimpleNamespace(metrics=Metrics(), world=SimpleNamespace(offload=Offload()), channel=channel)
        self.services = cast(Services, services)
        self.dispatcher = Dispatcher([self._api(), declared_envelope()], self.services)

    def _api(self) -> Api:
        return declared_api(
            UpdateFeaturesRequest, UpdateFeaturesResponse, self._update, None, error_response=failed, forwarded=True
        )

    async def _update(self, ctx: RequestContext, _request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
        self.seen.append(ctx)
        if self.refusal is not None:
            raise self.refusal
        return UpdateFeaturesResponse(error_message=f"done for {ctx.principal}")

    async def dispatch(self, frame: bytes, caller: Caller | None = None) -> bytes:
        result = self.dispatcher.dispatch(caller or Caller(), memoryview(bytearray(frame)))
        return b"".join(cast("list[bytes]", await settled(result)))


def declared_envelope() -> Api:
    return declared_api(EnvelopeRequest, EnvelopeResponse, envelope.handle, None, error_response=envelope.failed)


async def settled(result: Chunks | Deferred | None) -> Chunks:
    if isinstance(result, Deferred):
        done = asyncio.Event()
        result.listen(done.set)
        await asyncio.wait_for(done.wait(), 10)
        return result.chunks
    return result or []


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def whole() -> None:
        await story()

    asyncio.run(whole())


def request(version: int = 1) -> bytes:
    return encode_request(UpdateFeaturesRequest(feature_updates=[]), version, CORRELATION_ID, "client")


def enveloped(data: bytes, principal: bytes | None = None, host: bytes | None = None) -> bytes:
    message = EnvelopeRequest(
        request_data=data,
        request_principal=encode_principal("User:ann") if principal is None else principal or None,
        client_host_address=encode_host("192.0.2.7") if host is None else host,
    )
    return encode_request(message, 0, 1, "node-2")


def opened(frame: bytes) -> EnvelopeResponse:
    correlation_id, position = parse_response_header(58, 0, frame)
    assert correlation_id == 1
    return decode(EnvelopeResponse, frame, 0, position)


def features_answer(frame: bytes | None, version: int = 1) -> UpdateFeaturesResponse:
    assert frame is not None
    correlation_id, position = parse_response_header(57, version, frame)
    assert correlation_id == CORRELATION_ID
    return decode(UpdateFeaturesResponse, frame, version, position)


def test_from_one_node_to_the_other_and_back() -> None:
    async def story() -> None:
        controller = Node(Channel(is_here=True))
        broker = Node(Channel(is_here=False))

        async def forward(frame: bytes, *, principal: str, host: str) -> bytes | None:
            envelope_bytes = enveloped(frame, encode_principal(principal), encode_host(host))
            return opened(await controller.dispatch(envelope_bytes)).response_data

        cast(Any, broker.channel).forward = forward
        answer = features_answer(await broker.dispatch(request()))
        assert answer.error_message == "done for User:ann"
        (context,) = controller.seen
        assert (context.peer_host, context.client_id, context.correlation_id) == ("192.0.2.7", "client", CORRELATION_ID)
        assert not broker.seen

    run(story)


@pytest.mark.parametrize("channel", [None, Channel(is_here=True)])
def test_the_active_controller_serves_its_own_clients(channel: Channel | None) -> None:
    async def story() -> None:
        node = Node(channel)
        assert features_answer(await node.dispatch(request())).error_code == 0
        assert len(node.seen) == 1

    run(story)


def test_a_node_that_becomes_the_controller_while_it_looks_for_one_serves_the_request() -> None:
    async def story() -> None:
        node = Node(Channel(is_here=False))
        assert features_answer(await node.dispatch(request())).error_message == "done for User:ann"

    run(story)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ApiError(ErrorCode.NOT_CONTROLLER, "nobody leads"), ErrorCode.NOT_CONTROLLER),
        (ValueError("a bug"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_without_a_controller_the_client_hears_so_in_the_words_of_its_request(
    error: Exception, code: ErrorCode
) -> None:
    async def story() -> None:
        channel = Channel(is_here=False)
        channel.answer = error
        assert features_answer(await Node(channel).dispatch(request())).error_code == code

    run(story)


def test_a_malformed_request_ends_its_connection_wherever_that_is_seen() -> None:
    async def story() -> None:
        channel, caller = Channel(is_here=False), Caller()
        channel.answer = ApiError(ErrorCode.NOT_CONTROLLER, "nobody leads")
        assert await Node(channel).dispatch(request()[:-2], caller) == b""
        assert caller.refused
        assert opened(await Node(None).dispatch(enveloped(request()[:-2]))).error_code == ErrorCode.INVALID_REQUEST

    run(story)


def test_who_is_not_the_controller_opens_no_envelope() -> None:
    async def story() -> None:
        node = Node(Channel(is_here=False))
        answer = opened(await node.dispatch(enveloped(request())))
        assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)
        assert not node.seen

    run(story)


def test_an_error_of_the_request_is_inside_the_envelope() -> None:
    async def story() -> None:
        node = Node(None)
        node.refusal = ApiError(ErrorCode.FEATURE_UPDATE_FAILED, "not that")
        answer = opened(await node.dispatch(enveloped(request())))
        assert answer.error_code == 0
        assert features_answer(answer.response_data).error_message == "not that"

    run(story)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (enveloped(enveloped(request())), ErrorCode.INVALID_REQUEST),
        (
            enveloped(encode_request(UpdateFeaturesRequest(feature_updates=[]), 1, 1, None)[:4]),
            ErrorCode.INVALID_REQUEST,
        ),
        (enveloped(b"\0\x39\0\x63" + request()[4:]), ErrorCode.UNSUPPORTED_VERSION),
        (enveloped(b"\0\0" + request()[2:]), ErrorCode.INVALID_REQUEST),
        (enveloped(request(), principal=b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(request(), principal=b"\0\0\5"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(request(), principal=b"\0\7abc"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (enveloped(request(), host=b"abc"), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_does_not_belong_in_an_envelope(data: bytes, code: ErrorCode) -> None:
    async def story() -> None:
        node = Node(None)
        assert opened(await node.dispatch(data)).error_code == code
        assert not node.seen

    run(story)


def test_a_handler_without_an_answer_is_an_error_of_the_envelope() -> None:
    async def story() -> None:
        node = Node(None)
        api = declared_api(UpdateFeaturesRequest, UpdateFeaturesResponse, node._update, None, forwarded=True)
        node.dispatcher = Dispatcher([api, declared_envelope()], node.services)
        node.refusal = ValueError("a bug")
        assert opened(await node.dispatch(enveloped(request()))).error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    run(story)


def test_ipv6_clients_and_kafkas_bytes() -> None:
    async def story() -> None:
        node = Node(None)
        await node.dispatch(enveloped(request(), host=encode_host("2001:db8::1")))
        assert node.seen[0].peer_host == "2001:db8::1"

    run(story)
    assert encode_principal("User:ann") == b"\0\0\x05User\x04ann\0\0"
    assert encode(EnvelopeResponse(response_data=b"x"), 0) == b"\x02x\0\0\0"
    assert encode_response(EnvelopeResponse(), 0, 1) == b"\0\0\0\1\0" + b"\0\0\0\0"
