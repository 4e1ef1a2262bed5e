"""What the table of APIs is made of: an `Api` says all that the rest of the broker must know about one request type."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from ottla.api.context import RequestContext
from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.model.errors import ErrorCode
from ottla.wire.schema import Message


class Resource(IntEnum):
    """What a permission is about, with the protocol's codes."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class Operation(IntEnum):
    """What a permission allows, with the protocol's codes."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(NamedTuple):
    """What a principal needs to be granted before the request is looked at."""

    resource: Resource
    operation: Operation


HotHandler: TypeAlias = Callable[[RequestContext, memoryview, int], Chunks | Deferred | Awaitable[Chunks] | None]
"""Takes the frame and where its body begins. The frame may be written to and is gone when the call returns."""

Handler: TypeAlias = Callable[[RequestContext, Any], Message | Awaitable[Message]]
"""Takes the decoded request; a plain function where nothing has to be waited for, else a coroutine function."""

ErrorResponse: TypeAlias = Callable[[Any, ErrorCode, str, int], Message]
"""Makes the answer that says (request, code, message, version) failed as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One request type, and how it is served. The versions are those that are served, both ends included.

    A hot API parses its frame itself and returns the finished answer, response header included and size left out: its
    `request` and `response` stay None. Every other API is handed a decoded `request` and returns a `response`.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    handler: HotHandler | Handler
    permission: Permission | None = None
    """None where anybody may ask, as for ApiVersions."""
    hot: bool = False
    heavy: bool = False
    """The answer may have very many items; one that does is encoded in a thread."""
    request: type[Message] | None = None
    response: type[Message] | None = None
    error_response: ErrorResponse | None = None
    """Without it a request that fails closes its connection."""
    forwarded: bool = False
    """Only the active controller can answer: any other node hands the request on to it. Needs an `error_response`."""

    def supports(self, version: int) -> bool:
        return self.min_version <= version <= self.max_version


def declared_api(
    request: type[Message],
    response: type[Message],
    handler: Handler,
    permission: Permission | None,
    *,
    error_response: ErrorResponse | None = None,
    heavy: bool = False,
    forwarded: bool = False,
) -> Api:
    """An entry for an API whose messages are declared: key, name and versions are those of the request."""
    schema = request.__schema__
    if schema is None or schema.api_key is None:
        raise TypeError(f"{request.__name__} is no request")
    return Api(
        key=schema.api_key,
        name=request.__name__.removesuffix("Request"),
        min_version=schema.versions[0],
        max_version=schema.versions[1],
        handler=handler,
        permission=permission,
        heavy=heavy,
        request=request,
        response=response,
        error_response=error_response,
        forwarded=forwarded,
    )
