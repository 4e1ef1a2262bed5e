"""The feature levels of the cluster: what they are, and changing them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.errors import broker_error
from ottla.model.errors import ErrorCode
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

_CHANGES_SINCE = 1
"""From this version on a request says which way a level may go, and whether it is only tried."""


class LevelChange(IntEnum):
    """Which way a level may go, with the protocol's codes."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2


class Feature(NamedTuple):
    """A feature, the level that the cluster uses (0: not at all), and the levels that the controller supports."""

    name: str
    level: int
    min_level: int
    max_level: int


class Features:
    """Calls about feature levels, over a cluster that somebody else closes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(self) -> list[Feature]:
        """By name, as the controller says."""

        def attempt() -> list[Feature]:
            answer = self._cluster.controller().ask_versions()
            levels = {item.name: item.max_version_level for item in answer.finalized_features}
            ranges = {item.name: (item.min_version, item.max_version) for item in answer.supported_features}
            return [
                Feature(name, levels.get(name, 0), *ranges.get(name, (0, 0))) for name in sorted({*levels, *ranges})
            ]

        return self._cluster.retry(attempt)

    def update(self, levels: Mapping[str, int], change: LevelChange, *, validate_only: bool = False) -> None:
        """Give features these levels: all of them, or a BrokerError says why not."""

        def attempt() -> None:
            connection = self._cluster.controller()
            version = connection.version_of(UpdateFeaturesRequest)
            if validate_only and version < _CHANGES_SINCE:
                raise broker_error(ErrorCode.UNSUPPORTED_VERSION, "cannot try it: the broker is too old for that")
            request = UpdateFeaturesRequest(
                feature_updates=[_asked(name, level, change, version) for name, level in levels.items()],
                validate_only=validate_only,
            )
            answer = connection.call(request, UpdateFeaturesResponse)
            if answer.error_code != ErrorCode.NONE:
                raise broker_error(answer.error_code, "cannot change feature levels", answer.error_message)

        self._cluster.retry(attempt)


def _asked(name: str, level: int, change: LevelChange, version: int) -> FeatureUpdateKey:
    if version >= _CHANGES_SINCE:
        return FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=change)
    return FeatureUpdateKey(feature=name, max_version_level=level, allow_downgrade=change is not LevelChange.UPGRADE)
