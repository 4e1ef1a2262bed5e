"""Subscriptions to the metrics of clients: the CLIENT_METRICS configs, and what they come to for one client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.model.configs.definition import ResourceType
from ottla.model.configs.group import CLIENT_METRICS_CONFIGS
from ottla.model.errors import ConfigError
from ottla.model.ids import uuid_to_base64
from ottla.wire.crc import crc32c

ALL_METRICS: Final = "*"
INTERVAL_MS_DEFAULT: Final = 300_000
ATTRIBUTE_LENGTH_MAX: Final = 256


class TelemetryClient:
    """What is known of a client, as far as a subscription may ask for it. None where it is not known.

    A text that is too long counts as not known: the client writes it, the broker keeps it and matches patterns with it.
    """

    __slots__ = ("client_id", "software_name", "software_version", "source_address", "source_port")

    def __init__(
        self,
        *,
        client_id: str | None = None,
        software_name: str | None = None,
        software_version: str | None = None,
        source_address: str | None = None,
        source_port: int | None = None,
    ) -> None:
        self.client_id = _bounded(client_id)
        self.software_name = _bounded(software_name)
        self.software_version = _bounded(software_version)
        self.source_address = _bounded(source_address)
        self.source_port = source_port

    def attributes(self) -> dict[str, str]:
        """What is known, by the names that `match` has for it."""
        known = {
            "client_id": self.client_id,
            "client_software_name": self.software_name,
            "client_software_version": self.software_version,
            "client_source_address": self.source_address,
            "client_source_port": None if self.source_port is None else str(self.source_port),
        }
        return {key: text for key, text in known.items() if text is not None}


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """What one client is told: metrics by the prefixes of their names, none if there is no prefix."""

    id: int
    metrics: tuple[str, ...]
    interval_ms: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """One CLIENT_METRICS resource. `match` holds pairs of an attribute and a pattern; all of them must fit."""

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: tuple[tuple[str, re.Pattern[str]], ...]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        return all(key in attributes and pattern.fullmatch(attributes[key]) for key, pattern in self.match)


def parse_subscriptions(configs: Mapping[tuple[ResourceType, str], Mapping[str, str]]) -> tuple[Subscription, ...]:
    """Those that a metadata image holds, by name."""
    found = []
    for (resource, name), values in configs.items():
        if resource is ResourceType.CLIENT_METRICS and values:
            try:
                found.append(_parse(name, values))
            except (ConfigError, re.error):
                # They were checked when they were set; what another version took and this one cannot use stays aside.
                continue
    return tuple(sorted(found, key=lambda subscription: subscription.name))


def _parse(name: str, values: Mapping[str, str]) -> Subscription:
    parsed = {key: definition.parse(values[key]) for key, definition in CLIENT_METRICS_CONFIGS.items() if key in values}
    metrics, interval_ms, match = (parsed.get(key) for key in ("metrics", "interval.ms", "match"))
    pairs = (pattern.partition("=") for pattern in (match if isinstance(match, tuple) else ()))
    return Subscription(
        name=name,
        metrics=metrics if isinstance(metrics, tuple) else (),
        interval_ms=interval_ms if isinstance(interval_ms, int) else INTERVAL_MS_DEFAULT,
        match=tuple((key.strip(), re.compile(pattern.strip())) for key, _, pattern in pairs),
    )


def combined(subscriptions: tuple[Subscription, ...], client: TelemetryClient, instance_id: UUID) -> ClientSubscription:
    """What all subscriptions that match a client ask of it together, at the shortest of their intervals."""
    attributes = client.attributes() | {"client_instance_id": uuid_to_base64(instance_id)}
    matching = [subscription for subscription in subscriptions if subscription.matches(attributes)]
    metrics = tuple(sorted({metric for subscription in matching for metric in subscription.metrics}))
    if ALL_METRICS in metrics:
        metrics = (ALL_METRICS,)
    interval_ms = min((subscription.interval_ms for subscription in matching), default=INTERVAL_MS_DEFAULT)
    return ClientSubscription(_subscription_id(metrics, interval_ms, instance_id), metrics, interval_ms)


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: UUID) -> int:
    """The same for the same client and subscription on every broker; a signed 32 bit number."""
    checksum = crc32c(f"{','.join(metrics)};{interval_ms}".encode())
    for shift in range(0, 128, 32):
        checksum ^= instance_id.int >> shift & 0xFFFF_FFFF
    return checksum - (1 << 32) if checksum >= 1 << 31 else checksum


def _bounded(text: str | None) -> str | None:
    return text if text is not None and len(text) <= ATTRIBUTE_LENGTH_MAX else None
