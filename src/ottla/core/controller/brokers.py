"""Decisions about what is the cluster's own: producer ids, features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.core.controller.commands import (
    DONE,
    AllocateProducerIds,
    Decision,
    FeatureUpdate,
    Outcome,
    ProducerIdBlock,
    UpdateFeatures,
)
from ottla.core.controller.context import Context
from ottla.core.controller.image import BrokerImage
from ottla.core.controller.records import (
    FeatureLevelRecord,
    ProducerIdsRecord,
    Record,
)
from ottla.model.errors import ApiError, ErrorCode

PRODUCER_ID_BLOCK_SIZE: Final = 1000
_PRODUCER_ID_MAX: Final = 2**63 - 1

METADATA_VERSION: Final = "metadata.version"
METADATA_VERSION_LEVEL: Final = 30
"""The level whose records are written: Kafka 4.3."""
TRANSACTION_VERSION: Final = "transaction.version"
TRANSACTION_VERSION_LEVEL: Final = 2
"""Clients that know it give each transaction an epoch of its own (KIP-890)."""
SUPPORTED_FEATURES: Final[Mapping[str, tuple[int, int]]] = {
    METADATA_VERSION: (7, METADATA_VERSION_LEVEL),
    TRANSACTION_VERSION: (0, TRANSACTION_VERSION_LEVEL),
}
"""The features this version knows, with the lowest and highest level of each."""
BOOTSTRAP_RECORDS: Final[tuple[Record, ...]] = (
    FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_LEVEL),
    FeatureLevelRecord(name=TRANSACTION_VERSION, feature_level=TRANSACTION_VERSION_LEVEL),
)
"""What the log of a new cluster begins with."""

_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


def allocate_producer_ids(context: Context, command: AllocateProducerIds) -> Decision[ProducerIdBlock]:
    """The next block. Once its record is written its ids are never given out again, used or not."""
    check_broker_epoch(context, command.broker_id, command.broker_epoch)
    first = context.image.next_producer_id
    if first > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "Exhausted all producerIds.")
    record = ProducerIdsRecord(
        broker_id=command.broker_id,
        broker_epoch=command.broker_epoch,
        next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
    )
    return Decision((record,), ProducerIdBlock(first, PRODUCER_ID_BLOCK_SIZE))


def check_broker_epoch(context: Context, broker_id: int, epoch: int) -> BrokerImage:
    """The broker, if it lives the life that it says."""
    broker = context.image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {broker_id} is not registered.")
    if broker.epoch != epoch:
        raise ApiError(ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got {epoch}")
    return broker


def update_features(context: Context, command: UpdateFeatures) -> Decision[Outcome]:
    """All updates happen, or none and the answer says why."""
    records: dict[str, Record] = {}
    try:
        for update in command.updates:
            _check_update(context, update)
            if context.image.features.get(update.name, 0) != update.max_version_level:
                records[update.name] = FeatureLevelRecord(name=update.name, feature_level=update.max_version_level)
    except ApiError as error:
        words = f"The update failed for all features since the following feature had an error: {error.message}"
        return Decision((), Outcome(error.code, words))
    return Decision(() if command.validate_only else tuple(records.values()), DONE)


def _check_update(context: Context, update: FeatureUpdate) -> None:
    """Kafka's checks in Kafka's order."""
    name, level, upgrade_type = update

    def refuse(reason: str) -> ApiError:
        return ApiError(
            ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}"
        )

    current = context.image.features.get(name, 0)
    if upgrade_type not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise refuse("The controller does not support the given upgrade type.")
    if (
        upgrade_type != _UPGRADE
        and level == 0
        and name not in context.image.features
        and name not in SUPPORTED_FEATURES
    ):
        raise refuse(f"Feature {name} not found.")
    if level < 0:
        raise refuse("A feature version cannot be less than 0.")
    if name not in SUPPORTED_FEATURES:
        raise refuse(f"Local controller {context.config.node_id} does not support this feature.")
    low, high = SUPPORTED_FEATURES[name]
    if not low <= level <= high:
        raise refuse(f"Local controller {context.config.node_id} only supports versions {low}-{high}")
    if level < current and upgrade_type == _UPGRADE:
        raise refuse(
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    if level < current and name == METADATA_VERSION:
        raise ApiError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"Unsupported metadata.version downgrade from {current} to {level}. Refusing to perform the requested "
            "downgrade because it might delete metadata information.",
        )
