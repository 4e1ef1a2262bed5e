"""PushTelemetry 0: takes a client's metrics, in OTLP.

They are counted, and the counts are on the metrics page. What is inside is not looked at, nor decompressed.
Refused are a push before its time (THROTTLING_QUOTA_EXCEEDED), under another subscription than the client has
(UNKNOWN_SUBSCRIPTION_ID), in an unknown codec (UNSUPPORTED_COMPRESSION_TYPE), of more than telemetry.max.bytes
(TELEMETRY_TOO_LARGE), without an id, or after the client said goodbye (INVALID_REQUEST).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.api.get_telemetry_subscriptions import client_of
from ottla.model.errors import ApiError
from ottla.runtime.telemetry import Push
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    services = ctx.services
    push = Push(
        instance_id=request.client_instance_id,
        subscription_id=request.subscription_id,
        terminating=request.terminating,
        compression=request.compression_type,
        size_bytes=len(request.metrics),
    )
    try:
        services.telemetry.push(push, client_of(ctx), services.image, services.config.telemetry_max_bytes)
    except ApiError as error:
        services.metrics.request_errors[ctx.api_key] += 1
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
