"""What all Kafka clients of the demo have in common."""

from __future__ import annotations

from typing import Any


def settings(bootstrap_servers: str, **more: Any) -> dict[str, Any]:
    """For confluent-kafka; keys are written with underscores. That a broker is away is no news here."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "error_cb": lambda _error: None,
        "log_level": 0,
        "reconnect.backoff.max.ms": 500,
        "topic.metadata.refresh.fast.interval.ms": 50,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
