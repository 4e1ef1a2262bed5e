"""PushTelemetry: metrics of a client, in OTLP."""

from __future__ import annotations

from ottla.wire.schema import Bool, Bytes, Int8, Int16, Int32, Message, Uuid


class PushTelemetryRequest(Message, api_key=72, versions=(0, 0), flexible_since=0):
    """One push; `metrics` is compressed as the type says."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Message, api_key=72, versions=(0, 0), flexible_since=0):
    """Whether the push was taken."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
