"""UnregisterBroker 0: takes a broker that will not come back out of the metadata.

One that still runs registers itself anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.cluster_commands import UnregisterBroker
from ottla.model.errors import ErrorCode
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    await ctx.services.controller.submit(UnregisterBroker(request.broker_id))
    return UnregisterBrokerResponse()


def failed(_request: UnregisterBrokerRequest, code: ErrorCode, message: str, _version: int) -> UnregisterBrokerResponse:
    return UnregisterBrokerResponse(error_code=code, error_message=message or None)
