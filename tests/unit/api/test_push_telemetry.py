"""GetTelemetrySubscriptions and PushTelemetry, from request to answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast
from uuid import UUID, uuid4

import pytest

from ottla.api import get_telemetry_subscriptions, push_telemetry
from ottla.api.context import RequestContext, Services
from ottla.core.controller.image import MetadataImage
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.runtime.metrics import Metrics
from ottla.runtime.telemetry import Telemetry
from ottla.runtime.world import SystemClock
from ottla.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.wire.schema import decode, encode

GET_KEY, PUSH_KEY = 71, 72


@pytest.fixture
def services() -> Services:
    return cast(
        Services,
        SimpleNamespace(
            metrics=Metrics(),
            telemetry=Telemetry(SystemClock(), uuid4),
            config=BrokerConfig.from_properties({"node.id": "1", "telemetry.max.bytes": "500"}),
            image=MetadataImage(
                configs={
                    (ResourceType.CLIENT_METRICS, "shops"): {
                        "metrics": "org.apache.kafka.producer.",
                        "interval.ms": "3600000",
                        "match": "client_id=shop-.*,client_source_address=10\\..*",
                    }
                }
            ),
        ),
    )


def ask(services: Services, instance: UUID = ZERO_UUID, client_id: str = "shop-1") -> GetTelemetrySubscriptionsResponse:
    """The answer as it is on the wire."""
    ctx = RequestContext(services, GET_KEY, 0, 1, client_id, "10.1.2.3", "PLAINTEXT")
    answer = get_telemetry_subscriptions.handle(ctx, GetTelemetrySubscriptionsRequest(client_instance_id=instance))
    return decode(GetTelemetrySubscriptionsResponse, encode(answer, 0), 0)


def push(services: Services, instance: UUID, subscription: int, metrics: bytes = b"otlp", codec: int = 4) -> int:
    """The error code of the answer."""
    ctx = RequestContext(services, PUSH_KEY, 0, 1, "shop-1", "10.1.2.3", "PLAINTEXT")
    request = PushTelemetryRequest(
        client_instance_id=instance,
        subscription_id=subscription,
        terminating=False,
        compression_type=codec,
        metrics=metrics,
    )
    answer = push_telemetry.handle(ctx, decode(PushTelemetryRequest, encode(request, 0), 0))
    return decode(PushTelemetryResponse, encode(answer, 0), 0).error_code


def test_a_client_learns_what_to_push_and_pushes_it(services: Services) -> None:
    answer = ask(services)
    assert answer.error_code == 0
    assert answer.client_instance_id != ZERO_UUID
    assert list(answer.requested_metrics) == ["org.apache.kafka.producer."]
    assert list(answer.accepted_compression_types) == [4, 3, 1, 2]
    assert answer.push_interval_ms == 3_600_000
    assert answer.telemetry_max_bytes == 500
    assert answer.delta_temporality is True
    assert push(services, answer.client_instance_id, answer.subscription_id) == ErrorCode.NONE
    assert services.telemetry.pushed_bytes == len(b"otlp")


def test_a_client_that_is_not_meant_is_asked_for_nothing(services: Services) -> None:
    answer = ask(services, client_id="warehouse")
    assert answer.error_code == 0
    assert list(answer.requested_metrics) == []


def test_a_client_that_asks_again_too_soon_is_told_so(services: Services) -> None:
    answer = ask(services, ask(services).client_instance_id)
    assert answer.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert answer.client_instance_id == ZERO_UUID
    assert list(answer.requested_metrics) == []
    assert services.metrics.request_errors[GET_KEY] == 1


def test_a_client_learns_why_its_push_was_refused(services: Services) -> None:
    first = ask(services)
    assert push(services, ZERO_UUID, 0) == ErrorCode.INVALID_REQUEST
    assert push(services, first.client_instance_id, first.subscription_id + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(services, first.client_instance_id, first.subscription_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    second = ask(services)
    too_much = b"x" * 501
    assert push(services, second.client_instance_id, second.subscription_id, too_much) == ErrorCode.TELEMETRY_TOO_LARGE
    third = ask(services)
    code = push(services, third.client_instance_id, third.subscription_id, codec=9)
    assert code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert services.metrics.request_errors[PUSH_KEY] == 5
    assert services.telemetry.pushes == 0
