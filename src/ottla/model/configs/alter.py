"""Which changes of configs are allowed: the checks behind AlterConfigs, CreateTopics and their incremental kin.

Each check takes the configs as they would be after the change and raises an ApiError with Kafka's code and words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.model.configs.broker import LISTENER_PREFIX, find_definition
from ottla.model.configs.definition import ConfigDefinition, ConfigType, ResourceType, Update
from ottla.model.configs.group import (
    CLIENT_METRICS_CONFIGS,
    CLIENT_METRICS_INTERVAL_MS_MAX,
    CLIENT_METRICS_INTERVAL_MS_MIN,
    CLIENT_METRICS_MATCH_KEYS,
    GROUP_BOUNDS,
    GROUP_CONFIGS,
)
from ottla.model.configs.resolve import BrokerConfig, TopicConfig, resolve_topic
from ottla.model.configs.topic import TOPIC_CONFIGS
from ottla.model.errors import ApiError, ConfigError, ErrorCode

_TABLES: Final[Mapping[ResourceType, Mapping[str, ConfigDefinition]]] = {
    ResourceType.TOPIC: TOPIC_CONFIGS,
    ResourceType.GROUP: GROUP_CONFIGS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
}
_LISTENER_ONLY: Final = ("ssl.keystore.", "ssl.truststore.", "ssl.key.password")


def check_topic_configs(configs: Mapping[str, str], broker: BrokerConfig) -> TopicConfig:
    """INVALID_CONFIG unless a topic may have these configs; what they come to otherwise."""
    try:
        resolved = resolve_topic(configs, broker)
        if configs.get("remote.storage.enable", "").strip().lower() == "true":
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )
        if resolved.min_compaction_lag_ms > resolved.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({resolved.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({resolved.max_compaction_lag_ms})"
            )
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return resolved


def check_broker_configs(configs: Mapping[str, str], broker: BrokerConfig, *, per_broker: bool) -> None:
    """INVALID_REQUEST unless these may be the dynamic configs of one broker, or of all when not `per_broker`."""
    fixed = [name for name in configs if _update(name) is Update.READ_ONLY]
    if fixed:
        raise _refuse(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    bare = [name for name in configs if name.startswith(_LISTENER_ONLY)]
    if bare:
        raise _refuse(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(bare)}]"
        )
    single = [name for name in configs if _update(name) is Update.PER_BROKER]
    if single and not per_broker:
        raise _refuse(
            f"Cannot update these configs at default cluster level, broker id must be specified: [{', '.join(single)}]"
        )
    try:
        broker.with_dynamic(configs if per_broker else {}, {} if per_broker else configs, strict=True)
    except ConfigError as error:
        raise _refuse(str(error)) from None


def check_group_configs(configs: Mapping[str, str], broker: BrokerConfig) -> None:
    """INVALID_CONFIG unless a group may have these configs."""
    try:
        values = {name: _group_number(name, configs, broker) for name in GROUP_BOUNDS}
        for name in configs:
            if name not in GROUP_CONFIGS:
                raise ConfigError(f"Unknown group config name: {name}")
            GROUP_CONFIGS[name].parse(configs[name])
        for name in configs:
            if name in GROUP_BOUNDS:
                _check_bounds(name, values[name], broker)
        for kind in ("consumer", "share", "streams"):
            session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if values[session] <= values[heartbeat]:
                raise ConfigError(f"{session} must be greater than {heartbeat}")
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _group_number(name: str, configs: Mapping[str, str], broker: BrokerConfig) -> int:
    """A number of a group: its own, or what the broker has for all groups."""
    definition = GROUP_CONFIGS[name]
    value = definition.parse(configs[name]) if name in configs else broker.get(definition.synonyms[0])
    return value if isinstance(value, int) else 0


def _check_bounds(name: str, value: int, broker: BrokerConfig) -> None:
    low, high = GROUP_BOUNDS[name]
    lowest = broker.get(low) if low is not None else None
    highest = broker.get(high)
    if isinstance(lowest, int) and value < lowest:
        raise ConfigError(f"{name} must be greater than or equal to {low}")
    if isinstance(highest, int) and value > highest:
        raise ConfigError(f"{name} must be less than or equal to {high}")


def check_client_metrics_configs(name: str, configs: Mapping[str, str]) -> None:
    """INVALID_REQUEST or INVALID_CONFIG unless a client metrics subscription may have these configs."""
    if not name:
        raise _refuse("Subscription name can't be empty")
    for key, text in configs.items():
        if key not in CLIENT_METRICS_CONFIGS:
            raise _refuse(f"Unknown client metrics configuration: {key}")
        try:
            value = CLIENT_METRICS_CONFIGS[key].parse(text)
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if isinstance(value, int) and not CLIENT_METRICS_INTERVAL_MS_MIN <= value <= CLIENT_METRICS_INTERVAL_MS_MAX:
            raise _refuse(
                f"Invalid value {value} for interval.ms, interval must be between "
                f"{CLIENT_METRICS_INTERVAL_MS_MIN} and {CLIENT_METRICS_INTERVAL_MS_MAX} (1 hour)"
            )
        if key == "match" and isinstance(value, tuple):
            _check_patterns(value)


def _check_patterns(patterns: Iterable[str]) -> None:
    for pattern in patterns:
        key, _, expression = (part.strip() for part in pattern.partition("="))
        if key not in CLIENT_METRICS_MATCH_KEYS or not expression or not _compiles(expression):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def _compiles(expression: str) -> bool:
    try:
        re.compile(expression)
    except re.error:
        return False
    return True


def _definition(resource: ResourceType, name: str) -> ConfigDefinition | None:
    return find_definition(name) if resource is ResourceType.BROKER else _TABLES.get(resource, {}).get(name)


def type_of(resource: ResourceType, name: str) -> ConfigType:
    """The type of a key of a resource; UNKNOWN for a key that the resource does not have."""
    definition = _definition(resource, name)
    return ConfigType.UNKNOWN if definition is None else definition.type


def list_default(resource: ResourceType, name: str) -> tuple[str, ...]:
    """What APPEND and SUBTRACT start from where the resource has no value of its own: the built-in default."""
    definition = _definition(resource, name)
    return definition.default if definition is not None and isinstance(definition.default, tuple) else ()


def _update(name: str) -> Update | None:
    """How a key may change, None for a key that Kafka does not know: such keys may be stored."""
    definition = find_definition(name)
    if definition is None:
        return None
    if name.startswith(LISTENER_PREFIX) and definition.update is Update.CLUSTER_WIDE:
        return Update.CLUSTER_WIDE
    return definition.update


def _refuse(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
