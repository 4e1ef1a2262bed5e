"""UpdateFeatures: raises or lowers the feature levels of the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int8, Int16, Int32, Message, String, ignorable, since, until


class FeatureUpdateKey(Message):
    """A feature and the level it shall have, 0 for none; `upgrade_type` took over from `allow_downgrade`."""

    feature: String
    max_version_level: Int16
    allow_downgrade: Annotated[Bool, until(0)] = False
    upgrade_type: Annotated[Int8, since(1)] = 1


class UpdateFeaturesRequest(Message, api_key=57, versions=(0, 2), flexible_since=0):
    """Asks for feature levels, or only whether they could be had."""

    timeout_ms: Int32 = 60_000
    feature_updates: Sequence[FeatureUpdateKey]
    validate_only: Annotated[Bool, since(1)] = False


class UpdatableFeatureResult(Message):
    """What became of one feature."""

    feature: String
    error_code: Int16 = 0
    error_message: String | None = None


class UpdateFeaturesResponse(Message, api_key=57, versions=(0, 2), flexible_since=0):
    """What became of all of them; from version 2 on they stand or fall together."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    results: Annotated[Sequence[UpdatableFeatureResult], until(1), ignorable] = []
