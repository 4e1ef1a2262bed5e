"""Decisions about feature levels: whether one may change, and what follows if it does.

A level changes only if this controller and every registered broker support the new one, fenced brokers too: they may
come back. A broker is registered only if it supports the levels that there are.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from typing import Final

from ottla.core.controller.builder import apply
from ottla.core.controller.commands import DONE, Decision, FeatureUpdate, Outcome, UpdateFeatures
from ottla.core.controller.context import Context, with_dynamic_configs
from ottla.core.controller.elections import Electorate
from ottla.core.controller.feature_levels import (
    ELR_VERSION,
    IMPLIED_LEVELS,
    KRAFT_VERSION,
    KRAFT_VERSION_LEVEL,
    METADATA_VERSION,
    OFF_ONLY,
    SUPPORTED_FEATURES,
    UNSUPPORTED,
)
from ottla.core.controller.image import MetadataImage
from ottla.core.controller.records import (
    NO_LEADER,
    AbortTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    Record,
    SupportedFeature,
)
from ottla.model.configs.definition import ResourceType
from ottla.model.configs.resolve import MIN_INSYNC, BrokerConfig
from ottla.model.errors import ApiError, ErrorCode

REGISTERED_FEATURES: Final = tuple(SupportedFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items())
"""How a broker of this version tells which levels it supports."""

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3
_LOCAL: Final = {**SUPPORTED_FEATURES, KRAFT_VERSION: (0, KRAFT_VERSION_LEVEL)}


def bootstrap_records(config: BrokerConfig) -> list[Record]:
    """What the log of a new cluster begins with, where this is the config of the node that founds it."""
    levels = [FeatureLevelRecord(name=name, feature_level=highest) for name, (_, highest) in SUPPORTED_FEATURES.items()]
    return [*levels, _minimum_of_all(config)]


def opening_records(image: MetadataImage, config: BrokerConfig, *, is_in_transaction: bool) -> list[Record]:
    """What is written before a controller decides anything, if the log is new, or was Apache Kafka's until now.

    A transaction that was left open never ends. Features that this version has not are off: no broker of it could
    register, and nobody may think that they are there.
    """
    records: list[Record] = [AbortTransactionRecord(reason="another controller")] if is_in_transaction else []
    if not image.features:
        return records + bootstrap_records(config)
    foreign = [name for name in OFF_ONLY if image.features.get(name, 0) > 0]
    return records + [FeatureLevelRecord(name=name, feature_level=0) for name in foreign]


def update_features(context: Context, command: UpdateFeatures) -> Decision[Outcome]:
    """All updates happen, or none and the answer says why."""
    records: dict[str, Record] = {}
    refused: dict[str, ApiError] = {}
    for update in command.updates:
        try:
            _check_update(context, update)
        except ApiError as error:
            refused[update.name] = error
            continue
        if update.name != KRAFT_VERSION and _recorded(context, update.name) != update.max_version_level:
            records[update.name] = FeatureLevelRecord(name=update.name, feature_level=update.max_version_level)
    if refused:
        first = next(iter(refused.values()))
        return Decision((), Outcome(first.code, _words_of(list(refused.values())) + _possible(command, refused)))
    if command.validate_only:
        return Decision((), DONE)
    changes = (*records.values(), *_one_minimum(context, records))
    return Decision((*changes, *_partition_changes(context, changes)), DONE)


def check_registration(context: Context, features: Iterable[SupportedFeature]) -> None:
    """A broker must be able to work with the levels that the cluster uses."""
    supported = {name: (low, high) for name, low, high in features}
    for name in (*context.image.features, *(name for name in IMPLIED_LEVELS if name not in context.image.features)):
        level = context.image.feature_level(name)
        low, high = _range_in(supported, name)
        if not low <= level <= high:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. "
                f"The broker wants a version between {low} and {high}, inclusive.",
            )


def _check_update(context: Context, update: FeatureUpdate) -> None:
    """Kafka's checks in Kafka's order."""
    name, level, upgrade_type = update
    current = KRAFT_VERSION_LEVEL if name == KRAFT_VERSION else context.image.feature_level(name)
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _refusal(update, "The controller does not support the given upgrade type.")
    if level < 0:
        raise _refusal(update, "A feature version cannot be less than 0.")
    for who, (low, high) in _supporters(context, name):
        if not low <= level <= high:
            known = f"only supports versions {low}-{high}" if high else "does not support this feature."
            raise _refusal(update, f"{who} {known}")
    if level < current and upgrade_type == _UPGRADE:
        raise _refusal(
            update,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade.",
        )
    if level > current and upgrade_type != _UPGRADE:
        raise _refusal(update, "Can't downgrade to a newer version.")
    if level < current and name == KRAFT_VERSION:
        raise _refusal(update, "Can't downgrade the version of this feature.")
    if level < current and name == METADATA_VERSION:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. Refusing to perform the requested "
            "downgrade because it might delete metadata information.",
        )
    if name not in _LOCAL and name not in OFF_ONLY and name not in context.image.features:
        raise _refusal(update, f"Feature {name} not found.")


def _refusal(update: FeatureUpdate, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_UPDATE_VERSION,
        f"Invalid update version {update.max_version_level} for feature {update.name}. {reason}",
    )


def _words_of(refused: list[ApiError]) -> str:
    """Kafka names the first refusal. Where there are more, each is worth knowing before asking again."""
    which = "feature had an error" if len(refused) == 1 else "features had errors"
    reasons = " ".join(error.message for error in refused)
    return f"The update failed for all features since the following {which}: {reasons}"


def _possible(command: UpdateFeatures, refused: Container[str]) -> str:
    """Who asks for all features of a release of Kafka's hears which of them there are: none has changed."""
    possible = [f"{name}={level}" for name, level, _ in command.updates if name not in refused]
    missing = [f"no {OFF_ONLY[name]}" for name, _, _ in command.updates if name in refused and name in OFF_ONLY]
    if not possible or len(missing) + len(possible) < len(command.updates):
        return ""
    return f" Nothing was changed, because there are {' and '.join(missing)} here. Ask for {', '.join(possible)} alone."


def _supporters(context: Context, name: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """Who has to support a level, and which levels that is."""
    yield f"Local controller {context.config.node_id}", _LOCAL.get(name, UNSUPPORTED)
    if name == KRAFT_VERSION:
        return  # Voters agree on it among themselves, and it is the same for all that there are.
    for broker in context.image.brokers.values():
        supported = {item.name: (item.min_version, item.max_version) for item in broker.features}
        yield f"Broker {broker.id}", _range_in(supported, name)


def _range_in(supported: dict[str, tuple[int, int]], name: str) -> tuple[int, int]:
    """The levels that a broker can work with which says this."""
    implied = IMPLIED_LEVELS.get(name)
    return supported.get(name, UNSUPPORTED if implied is None else (implied, implied))


def _recorded(context: Context, name: str) -> int | None:
    """The level as far as a record says it; an implied one is worth a record when somebody asks for it."""
    return context.image.features.get(name, None if name in IMPLIED_LEVELS else 0)


def _one_minimum(context: Context, updated: Container[str]) -> Iterator[ConfigRecord]:
    """Where the ELR is switched on, no broker keeps a min.insync.replicas of its own; the controller's is for all."""
    if ELR_VERSION not in updated or context.image.feature_level(ELR_VERSION) > 0:
        return
    for kind, name in sorted(context.image.configs):
        if kind == ResourceType.BROKER and name and MIN_INSYNC in context.image.configs_of(ResourceType.BROKER, name):
            yield ConfigRecord(resource_type=kind, resource_name=name, name=MIN_INSYNC, value=None)
    if MIN_INSYNC not in context.image.configs_of(ResourceType.BROKER, ""):
        yield _minimum_of_all(context.config)


def _minimum_of_all(config: BrokerConfig) -> ConfigRecord:
    """Else brokers whose files differ, as they do during a rolling restart, would judge by different minimums: a leader
    would acknowledge without a replica that the controller takes for eligible."""
    value = str(config.topic_defaults.min_insync_replicas)
    return ConfigRecord(resource_type=ResourceType.BROKER, resource_name="", name=MIN_INSYNC, value=value)


def _partition_changes(context: Context, records: tuple[Record, ...]) -> Iterator[PartitionChangeRecord]:
    """What must follow a change of levels: where the ELR is switched on or off, the other list remembers who may lead.

    A partition without a leader has an empty ISR where there is an ELR, and an ISR of those that are waited for where
    there is none.
    """
    before = context.image
    after, _ = apply(before, records, offset=context.next_offset + len(records) - 1, epoch=before.epoch)
    has_elr = after.feature_level(ELR_VERSION) > 0
    if has_elr == (before.feature_level(ELR_VERSION) > 0):
        return
    electorate = Electorate(replace(context, image=after, config=with_dynamic_configs(context.config, after)))
    for topic in after.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.leader == NO_LEADER or partition.elr:
                isr = () if has_elr else partition.isr or partition.elr
                record = electorate.change(topic, index, isr=isr)
                if record is not None:
                    yield record
