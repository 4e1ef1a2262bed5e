"""Decisions about configs: the whole set of a resource, or single keys of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from ottla.core.controller.commands import (
    DONE,
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    Decision,
    IncrementalAlterConfigs,
    Outcome,
    ResourceChange,
    ResourceConfigs,
    ResourceOutcome,
)
from ottla.core.controller.config_effects import partition_changes
from ottla.core.controller.context import Context
from ottla.core.controller.feature_levels import ELR_VERSION
from ottla.core.controller.records import ConfigRecord, Record
from ottla.core.controller.validation import check_topic_name
from ottla.model.configs.alter import (
    check_broker_configs,
    check_client_metrics_configs,
    check_group_configs,
    check_topic_configs,
    list_default,
    type_of,
)
from ottla.model.configs.definition import ConfigType, ResourceType
from ottla.model.configs.resolve import MIN_INSYNC
from ottla.model.errors import ApiError, ErrorCode

ResourceT = TypeVar("ResourceT", ResourceChange, ResourceConfigs)
_ALTERABLE: Final = frozenset(
    (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)
)


def incremental_alter_configs(context: Context, command: IncrementalAlterConfigs) -> Decision[list[ResourceOutcome]]:
    """Each resource is changed as a whole, or refused for itself."""

    def after(resource: ResourceType, asked: ResourceChange) -> dict[str, str]:
        _check_keys_once(change.name for change in asked.changes)
        configs = dict(context.image.configs_of(resource, asked.name))
        for change in asked.changes:
            _change(resource, configs, change)
        return configs

    return _alter(context, command.resources, after, validate_only=command.validate_only)


def alter_configs(context: Context, command: AlterConfigs) -> Decision[list[ResourceOutcome]]:
    """Each resource has exactly the given configs afterwards, or is refused for itself."""

    def after(resource: ResourceType, asked: ResourceConfigs) -> dict[str, str]:
        _check_keys_once(name for name, _ in asked.configs)
        return {name: _not_null(name, value) for name, value in asked.configs}

    return _alter(context, command.resources, after, validate_only=command.validate_only)


def _alter(
    context: Context,
    resources: Sequence[ResourceT],
    after: Callable[[ResourceType, ResourceT], dict[str, str]],
    *,
    validate_only: bool,
) -> Decision[list[ResourceOutcome]]:
    times = Counter((asked.type, asked.name) for asked in resources)
    records: list[Record] = []
    answers: list[ResourceOutcome] = []
    for asked in resources:
        try:
            if times[asked.type, asked.name] > 1:
                raise _invalid("Each resource must appear at most once.")
            resource = _resource(context, asked.type, asked.name)
            configs = after(resource, asked)
            _check(context, resource, asked.name, configs)
            records += _differences(context, resource, asked.name, configs)
            answers.append(ResourceOutcome(asked.type, asked.name, DONE))
        except ApiError as error:
            answers.append(ResourceOutcome(asked.type, asked.name, Outcome.of(error)))
    return Decision(() if validate_only else (*records, *partition_changes(context, records)), answers)


def _check_keys_once(names: Iterable[str]) -> None:
    if any(times > 1 for times in Counter(names).values()):
        raise _invalid("Error due to duplicate config keys")


def _not_null(name: str, value: str | None) -> str:
    if value is None:
        raise _invalid(f"Null value not supported for : {name}")
    return value


def _change(resource: ResourceType, configs: dict[str, str], change: ConfigChange) -> None:
    """Carry out one operation on the configs of a resource."""
    name = change.name
    if change.operation == ConfigOperation.DELETE:
        configs.pop(name, None)
        return
    value = _not_null(name, change.value)
    if change.operation == ConfigOperation.SET:
        configs[name] = value
        return
    if change.operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise _invalid(f"Unknown operation {change.operation} for config {name}")
    operation = ConfigOperation(change.operation)
    if type_of(resource, name) is not ConfigType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {name} because its type is not LIST.")
    given = _given(value)
    current = _entries(configs[name]) if name in configs else list(list_default(resource, name))
    if operation is ConfigOperation.APPEND:
        current += [entry for entry in dict.fromkeys(given) if entry not in current]
    else:
        current = [entry for entry in current if entry not in given]
    configs[name] = ",".join(current)


def _given(text: str) -> list[str]:
    """What a change names. Nothing at all is one empty entry, as in Kafka, and no list takes that beside others."""
    if text and not text.strip(","):
        return []
    return [entry.strip() for entry in text.rstrip(",").split(",")]


def _entries(text: str) -> list[str]:
    return [entry.strip() for entry in text.split(",") if entry.strip()]


def _resource(context: Context, kind: int, name: str) -> ResourceType:
    """The kind of resource, if there is such a resource whose configs may change."""
    if kind not in _ALTERABLE:
        raise _invalid(f"Unknown resource type {kind}")
    resource = ResourceType(kind)
    if resource is ResourceType.TOPIC:
        _check_topic_exists(context, name)
    elif resource is ResourceType.BROKER and name:
        _check_broker_exists(context, name)
    elif resource is ResourceType.GROUP and not name:
        raise _invalid("Default group resources are not allowed.")
    return resource


def _check_topic_exists(context: Context, name: str) -> None:
    if not name:
        raise _invalid("Default topic resources are not allowed.")
    check_topic_name(name)
    if name not in context.image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_broker_exists(context: Context, name: str) -> None:
    if not name.removeprefix("-").isdecimal() or not name.isascii():
        raise _invalid(f"Node id must be an integer, but it is: {name}")
    if int(name) not in context.image.brokers:
        expected = ", ".join(str(broker_id) for broker_id in sorted(context.image.brokers))
        raise _invalid(f"Unexpected broker id, expected {expected}, but received {name}")


def _check(context: Context, resource: ResourceType, name: str, configs: Mapping[str, str]) -> None:
    if resource is ResourceType.TOPIC:
        check_topic_configs(configs, context.config)
    elif resource is ResourceType.BROKER:
        check_broker_configs(configs, context.config, per_broker=bool(name))
        _check_minimum_is_everybodys(context, name, configs)
    elif resource is ResourceType.GROUP:
        check_group_configs(configs, context.config)
    else:
        check_client_metrics_configs(name, configs)


def _check_minimum_is_everybodys(context: Context, broker: str, configs: Mapping[str, str]) -> None:
    """A leader whose own minimum is below the controller's moves its high watermark without those that are eligible.

    Kafka's refusals, but for one thing: a value of one broker that an older version took may stay, and may be deleted.
    Without the cluster's value each broker would fall back on the one that it was started with.
    """
    wanted = configs.get(MIN_INSYNC)
    before = context.image.configs_of(ResourceType.BROKER, broker).get(MIN_INSYNC)
    if wanted == before or context.image.feature_level(ELR_VERSION) == 0:
        return
    if broker and wanted is not None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        )
    if not broker and wanted is None:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        )


def _differences(
    context: Context, resource: ResourceType, name: str, configs: Mapping[str, str]
) -> Iterable[ConfigRecord]:
    """The records that lead from what a resource has to what it is to have."""
    before = context.image.configs_of(resource, name)
    for key in sorted(before.keys() | configs.keys()):
        if before.get(key) != configs.get(key):
            yield ConfigRecord(resource_type=resource, resource_name=name, name=key, value=configs.get(key))


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
