"""BrokerRegistration 0-4: a broker starts and tells the controller who it is.

It is fenced at first. From version 3 on it can say which life of it ended with a clean stop; if that is not the last
one that the controller knows, or before version 3, it has to catch up before it is in sync with anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.commands import RegisterBroker
from ottla.core.controller.records import BrokerEndpoint, SupportedFeature
from ottla.model.errors import ErrorCode
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: BrokerRegistrationRequest) -> BrokerRegistrationResponse:
    command = RegisterBroker(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        cluster_id=request.cluster_id,
        endpoints=[
            BrokerEndpoint(item.name, item.host, item.port, item.security_protocol) for item in request.listeners
        ],
        features=[
            SupportedFeature(item.name, item.min_supported_version, item.max_supported_version)
            for item in request.features
        ],
        rack=request.rack,
        log_dirs=request.log_dirs,
        fenced=True,
        clean_start=request.previous_broker_epoch >= 0,
        previous_broker_epoch=request.previous_broker_epoch,
    )
    return BrokerRegistrationResponse(broker_epoch=await ctx.services.controller.submit(command))


def failed(
    _request: BrokerRegistrationRequest, code: ErrorCode, _message: str, _version: int
) -> BrokerRegistrationResponse:
    return BrokerRegistrationResponse(error_code=code)
