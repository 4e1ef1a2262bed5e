"""GetTelemetrySubscriptions 0: which metrics a client shall push, how often, and under which id.

A client that asks with the zero id is given one. It may ask once per push interval, and at once when the subscriptions
have changed; earlier it gets THROTTLING_QUOTA_EXCEEDED. A client that no subscription matches is told to push nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ApiError, ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.runtime.telemetry import ACCEPTED_COMPRESSION
from ottla.runtime.telemetry_subscriptions import TelemetryClient
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


def handle(ctx: RequestContext, request: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
    services = ctx.services
    try:
        instance_id, subscription = services.telemetry.ask(request.client_instance_id, client_of(ctx), services.image)
    except ApiError as error:
        services.metrics.request_errors[ctx.api_key] += 1
        return failed(request, error.code, error.message, ctx.api_version)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=subscription.id,
        accepted_compression_types=ACCEPTED_COMPRESSION,
        push_interval_ms=subscription.interval_ms,
        telemetry_max_bytes=services.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=subscription.metrics,
    )


def client_of(ctx: RequestContext) -> TelemetryClient:
    """What the connection knows of its client."""
    return TelemetryClient(client_id=ctx.client_id, source_address=ctx.peer_host)


def failed(
    _request: GetTelemetrySubscriptionsRequest, code: ErrorCode, _message: str, _version: int
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(
        error_code=code,
        client_instance_id=ZERO_UUID,
        subscription_id=0,
        accepted_compression_types=(),
        push_interval_ms=0,
        telemetry_max_bytes=0,
        delta_temporality=False,
        requested_metrics=(),
    )
