"""Envelope 0: a client's request that another node could not answer, for the active controller.

The request is served as if its client had sent it here: with the client's principal, address and correlation id, and
its permissions are those of that principal. So only nodes may send envelopes, which is what CLUSTER_ACTION is for. Only
what the table marks as `forwarded` may be inside, which an envelope is not.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from ottla.model.errors import ApiError, ErrorCode, MalformedMessageError
from ottla.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse
from ottla.wire.schema import decode

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

PRINCIPAL_VERSION_BYTES = 2


async def handle(ctx: RequestContext, request: EnvelopeRequest) -> EnvelopeResponse:
    services = ctx.services
    if services.channel is not None and not services.channel.is_here:
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    if services.dispatch_enveloped is None:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "this node does not serve envelopes")
    answer = await services.dispatch_enveloped(
        request.request_data,
        principal=_principal(request.request_principal),
        host=_host(request.client_host_address),
        listener=ctx.listener,
    )
    return EnvelopeResponse(response_data=answer)


def failed(_request: EnvelopeRequest, code: ErrorCode, _message: str, _version: int) -> EnvelopeResponse:
    return EnvelopeResponse(error_code=code)


def _principal(data: bytes | None) -> str:
    if data is None:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "an envelope names a principal")
    try:
        version = int.from_bytes(data[:PRINCIPAL_VERSION_BYTES], "big")
        principal = decode(DefaultPrincipalData, data, version, PRINCIPAL_VERSION_BYTES)
    except (MalformedMessageError, ApiError) as error:
        message = f"the principal of an envelope could not be read: {error}"
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, message) from error
    return f"{principal.type}:{principal.name}"


def _host(data: bytes) -> str:
    if len(data) == 4:
        return socket.inet_ntop(socket.AF_INET, data)
    if len(data) == 16:
        return socket.inet_ntop(socket.AF_INET6, data)
    raise ApiError(ErrorCode.INVALID_REQUEST, "an envelope names the address of its client")
