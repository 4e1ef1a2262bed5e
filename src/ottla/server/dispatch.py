"""From a frame to its answer: header, table, handler, and what becomes of a failure.

Theory of operation. A hot API gets the frame where it lies and returns the finished answer. Every other request is
decoded, handled and encoded here. Where the handler is a coroutine, the frame is long or the answer is large, that
happens in a task, and the connection gets a `Deferred` meanwhile. A task goes on when its client leaves: what it
decided must still be finished.

What only the active controller can answer goes to it in an envelope where it is on another node, and its answer, which
bears the client's correlation id, is passed on as it is. In the other direction, `dispatch_enveloped` serves what came
in an envelope; such a request is never handed on again.

Failures. An `ApiError` is answered by the API's own error answer, anything unexpected likewise with
UNKNOWN_SERVER_ERROR and a traceback in the log. Where an API has no error answer, or the bytes are no message, the
connection is closed: a client that got no answer knows that much, while a wrong answer misleads it. Nothing is raised
to the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import structlog

from ottla.api.context import Caller, Rememberer, RequestContext, Services
from ottla.api.deferred import Alone, Deferred, settled
from ottla.model.chunks import Chunks
from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.model.limits import HEAVY_ANSWER_WEIGHT, LONG_REQUEST_WEIGHT, RECORDS_ANSWER_ITEMS_INLINE_MAX
from ottla.wire.fetch_types import API_KEY as FETCH_KEY
from ottla.wire.headers import API_VERSIONS_KEY, RequestHeader, encode_response, request_header_fields
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.schema import Message, decode

if TYPE_CHECKING:
    from ottla.api.entry import Api, Handler, HotHandler
    from ottla.runtime.controller_channel import ControllerChannel
    from ottla.runtime.remembered_fetches import RememberedFetch
    from ottla.runtime.repeated_fetches import RepeatedFetch

DECODE_INLINE_BYTES_MAX: Final = 64 * 1024
"""A longer request is decoded in a thread."""

_NOT_SERVED: Final = (None, 0, -1, None)

log = structlog.get_logger("ottla.server")


class Peer(Caller, Rememberer, Protocol):
    """Who asks, as far as dispatching needs to know."""

    def refuse(self, reason: str) -> None:
        """Close the connection because of what was asked."""


Dispatch: TypeAlias = Callable[[Peer, memoryview], Chunks | Deferred | None]


class EnvelopedPeer:
    """A client of another node, whose request came in an envelope. It cannot be hung up on; `refused` says why."""

    __slots__ = ("host", "listener", "principal", "refused", "remembered_fetch", "repeated_fetch")

    def __init__(self, host: str, listener: str, principal: str) -> None:
        self.host = host
        self.listener = listener
        self.principal = principal
        self.refused: str | None = None
        self.remembered_fetch: RememberedFetch | None = None
        self.repeated_fetch: RepeatedFetch | None = None

    def refuse(self, reason: str) -> None:
        self.refused = reason


class Dispatcher:
    """Serves the APIs of one table."""

    __slots__ = ("_apis", "_metrics", "_served", "_services", "_tasks")

    def __init__(self, apis: Iterable[Api], services: Services) -> None:
        self._apis = {api.key: api for api in apis}
        self._served: dict[int, tuple[Api | None, int, int, HotHandler | None]] = {
            api.key: (api, api.min_version, api.max_version, cast("HotHandler", api.handler) if api.hot else None)
            for api in self._apis.values()
        }
        """What `dispatch` needs of an API, in one place."""
        self._services = services
        self._metrics = services.metrics
        self._tasks: dict[asyncio.Task[None], None] = {}
        services.dispatch_enveloped = self.dispatch_enveloped

    def dispatch(self, peer: Peer, frame: memoryview) -> Chunks | Deferred | None:
        """The answer, or the promise of one; None if there is nothing to send. The frame is free again afterwards."""
        repeated = peer.repeated_fetch
        if repeated is not None:
            chunks = repeated.answer(frame, self._services.config)
            if chunks is not None:
                self._metrics.requests[FETCH_KEY] += 1
                return chunks
        try:
            key, version, correlation_id, client_id, position = request_header_fields(frame)
            api, version_min, version_max, hot = self._served.get(key, _NOT_SERVED)
            if not version_min <= version <= version_max or api is None:
                header = RequestHeader(key, version, correlation_id, client_id, position)
                return self._unsupported(api, header, peer)
            self._metrics.requests[key] += 1
            context = RequestContext(
                self._services, key, version, correlation_id, client_id, peer.host, peer.listener, peer.principal, peer
            )
            if hot is None:
                return self._serve(api, context, frame, position, peer)
            try:
                answer = hot(context, frame, position)
                if isinstance(answer, list) or answer is None or isinstance(answer, Deferred):
                    return answer
                weight = LONG_REQUEST_WEIGHT if isinstance(answer, Alone) else 1
                return self._later(self._finish_hot(api, context, answer, peer), weight)
            except Exception as error:
                # A hot handler answers what it can answer, so nothing is left to say but goodbye.
                return self._close_over(api, context, error, peer)
        except MalformedMessageError as error:
            peer.refuse(f"malformed request: {error}")
            return None

    async def dispatch_enveloped(self, frame: bytes, *, principal: str, host: str, listener: str) -> bytes:
        """The answer to a request that another node has handed on; ApiError if it is none that may be handed on."""
        try:
            key, version, correlation_id, client_id, position = request_header_fields(frame)
            api = self._apis.get(key)
            if api is None or not api.forwarded:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"a request with API key {key} is not handed on")
            if not api.supports(version):
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} is not served in version {version}")
            self._metrics.requests[key] += 1
            peer = EnvelopedPeer(host, listener, principal)
            context = RequestContext(self._services, key, version, correlation_id, client_id, host, listener, principal)
            chunks = await settled(self._serve_here(api, context, frame, position, peer))
        except MalformedMessageError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"malformed request in an envelope: {error}") from error
        if peer.refused is not None or not chunks:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, peer.refused or f"{api.name} has no answer")
        return b"".join(cast("list[bytes]", chunks))

    async def close(self) -> None:
        """Cancel what is still being worked on; after the listeners have closed."""
        await asyncio.sleep(0)  # What was started in this turn begins, and so ends cleanly.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _unsupported(self, api: Api | None, header: RequestHeader, peer: Peer) -> Chunks | None:
        """A client may ask ApiVersions in any version and is told which there are; all else is beyond answering."""
        self._metrics.requests_unsupported += 1
        if api is not None and api.key == API_VERSIONS_KEY:
            versions = ApiVersion(api_key=api.key, min_version=api.min_version, max_version=api.max_version)
            answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[versions])
            return [encode_response(answer, 0, header.correlation_id)]
        name = f"API key {header.api_key}" if api is None else api.name
        peer.refuse(f"{name} is not served in version {header.api_version} (client {header.client_id!r})")
        return None

    def _serve(
        self, api: Api, context: RequestContext, frame: memoryview, position: int, peer: Peer
    ) -> Chunks | Deferred | None:
        data = bytes(frame)
        if api.forwarded and self._services.channel is not None and not self._services.channel.is_here:
            forwarding = self._forward(self._services.channel, api, context, data, position, peer)
            return self._later(forwarding, _weight(api, len(data)))
        return self._serve_here(api, context, data, position, peer)

    def _serve_here(
        self, api: Api, context: RequestContext, data: bytes, position: int, peer: Peer
    ) -> Chunks | Deferred:
        if len(data) > DECODE_INLINE_BYTES_MAX:
            return self._later(self._serve_long(api, context, data, position, peer), _weight(api, len(data)))
        request = decode(_request_type(api), data, context.api_version, position)
        try:
            result = cast("Handler", api.handler)(context, request)
            if not isinstance(result, Message):
                awaiting = self._serve_awaited(api, context, request, result, peer, heavy=api.heavy)
                return self._later(awaiting, _weight(api, len(data)))
            if api.heavy and has_many_items(result):
                encoding = self._serve_heavy(api, context, request, result, peer)
                return self._later(encoding, _weight(api, len(data)))
            return [encode_response(result, context.api_version, context.correlation_id)]
        except Exception as error:
            return self._error_answer(api, context, request, error, peer)

    async def _forward(
        self,
        channel: ControllerChannel,
        api: Api,
        context: RequestContext,
        data: bytes,
        position: int,
        peer: Peer,
    ) -> Chunks:
        try:
            answer = await channel.forward(data, principal=context.principal, host=context.peer_host)
            if answer is not None:
                return [answer]
            return await settled(self._serve_here(api, context, data, position, peer))
        except MalformedMessageError as error:
            peer.refuse(f"malformed request: {error}")
            return []
        except Exception as error:
            return await self._refuse_forwarded(api, context, data, position, error, peer)

    async def _refuse_forwarded(
        self, api: Api, context: RequestContext, data: bytes, position: int, error: Exception, peer: Peer
    ) -> Chunks:
        """The API's own error answer needs the request, which nobody here has looked at yet."""
        run = self._services.world.offload.run
        try:
            request = await run(decode, _request_type(api), data, context.api_version, position)
        except MalformedMessageError as malformed:
            peer.refuse(f"malformed request: {malformed}")
            return []
        return self._error_answer(api, context, request, error, peer)

    async def _serve_long(self, api: Api, context: RequestContext, data: bytes, position: int, peer: Peer) -> Chunks:
        offload = self._services.world.offload
        try:
            request = await offload.run(decode, _request_type(api), data, context.api_version, position)
        except MalformedMessageError as error:
            peer.refuse(f"malformed request: {error}")
            return []
        try:
            result = cast("Handler", api.handler)(context, request)
        except Exception as error:
            return self._error_answer(api, context, request, error, peer)
        return await self._serve_awaited(api, context, request, result, peer, heavy=True)

    async def _serve_awaited(
        self,
        api: Api,
        context: RequestContext,
        request: Message,
        result: Message | Awaitable[Message],
        peer: Peer,
        *,
        heavy: bool,
    ) -> Chunks:
        """`heavy`: the answer may have very many items, as one to a long request may."""
        try:
            answer = result if isinstance(result, Message) else await result
            if heavy and has_many_items(answer):
                return await self._serve_heavy(api, context, request, answer, peer)
            return [encode_response(answer, context.api_version, context.correlation_id)]
        except Exception as error:
            return self._error_answer(api, context, request, error, peer)

    async def _serve_heavy(
        self, api: Api, context: RequestContext, request: Message, answer: Message, peer: Peer
    ) -> Chunks:
        try:
            run = self._services.world.offload.run
            return [await run(encode_response, answer, context.api_version, context.correlation_id)]
        except Exception as error:
            return self._error_answer(api, context, request, error, peer)

    async def _finish_hot(self, api: Api, context: RequestContext, result: Awaitable[Chunks], peer: Peer) -> Chunks:
        try:
            return await result
        except Exception as error:
            return self._close_over(api, context, error, peer)

    def _later(self, work: Coroutine[Any, Any, Chunks], weight: int = 1) -> Deferred:
        deferred = Deferred()
        deferred.weight = weight
        task = asyncio.get_running_loop().create_task(_complete(deferred, work))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return deferred

    def _error_answer(
        self, api: Api, context: RequestContext, request: Message, error: Exception, peer: Peer
    ) -> Chunks:
        """What the client is told about a failure; nothing if the connection closes over it."""
        if api.error_response is None or isinstance(error, MalformedMessageError):
            return self._close_over(api, context, error, peer)
        code, message = self._note_failure(api, context, error)
        try:
            answer = api.error_response(request, code, message, context.api_version)
            return [encode_response(answer, context.api_version, context.correlation_id)]
        except Exception as second_error:
            return self._close_over(api, context, second_error, peer)

    def _close_over(self, api: Api, context: RequestContext, error: Exception, peer: Peer) -> Chunks:
        _, message = self._note_failure(api, context, error)
        peer.refuse(f"{api.name} version {context.api_version} failed: {message}")
        return []

    def _note_failure(self, api: Api, context: RequestContext, error: Exception) -> tuple[ErrorCode, str]:
        self._metrics.request_errors[api.key] += 1
        if isinstance(error, ApiError):
            return error.code, error.message
        if isinstance(error, MalformedMessageError):
            return ErrorCode.INVALID_REQUEST, f"malformed request: {error}"
        log.error(
            "request failed",
            api=api.name,
            version=context.api_version,
            client_id=context.client_id,
            peer=context.peer_host,
            exc_info=error,
        )
        return ErrorCode.UNKNOWN_SERVER_ERROR, "the broker failed on this request; its log says why"


async def _complete(deferred: Deferred, work: Coroutine[Any, Any, Chunks]) -> None:
    deferred.complete(await work)


def _weight(api: Api, request_bytes: int) -> int:
    """What an answer that comes later may cost until it is sent, in usual answers."""
    if request_bytes > DECODE_INLINE_BYTES_MAX:
        return LONG_REQUEST_WEIGHT
    return HEAVY_ANSWER_WEIGHT if api.heavy else 1


def _request_type(api: Api) -> type[Message]:
    if api.request is None:
        raise MalformedMessageError(f"{api.name} has no request type in the table of APIs")
    return api.request


def has_many_items(message: Message, items_max: int = RECORDS_ANSWER_ITEMS_INLINE_MAX) -> bool:
    """Whether the lists of a message, and the lists inside them, hold more than this; stops counting when they do."""
    return _count_items(message, items_max) > items_max


def _count_items(message: Message, items_max: int) -> int:
    count = 0
    for name in message.__struct_fields__:
        items = getattr(message, name)
        if isinstance(items, list | tuple):
            count += len(items)
            for item in items:
                if count > items_max or not isinstance(item, Message):
                    break
                count += _count_items(item, items_max - count)
    return count
