"""UpdateFeatures 0-2: moves feature levels of the cluster, all of them or none.

A refusal is told once, as by Kafka, and names every feature that is refused. There is no share.version and no
streams.version: their level is 0. So `kafka-features upgrade --release-version 4.3` changes nothing, and is told which
of its features to ask for; the protocol has no answer that says of some that they were upgraded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.core.controller.commands import FeatureUpdate, UpdateFeatures
from ottla.model.errors import ErrorCode
from ottla.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext

UPGRADE, SAFE_DOWNGRADE = 1, 2


async def handle(ctx: RequestContext, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(update.feature, update.max_version_level, _upgrade_type(ctx.api_version, update))
        for update in request.feature_updates
    ]
    outcome = await ctx.services.controller.submit(UpdateFeatures(updates, validate_only=request.validate_only))
    if outcome.code is not ErrorCode.NONE:
        return failed(request, outcome.code, outcome.message or "", ctx.api_version)
    return UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=update.feature) for update in request.feature_updates]
    )


def failed(_request: UpdateFeaturesRequest, code: ErrorCode, message: str, _version: int) -> UpdateFeaturesResponse:
    """All updates share one outcome, so no feature has one of its own."""
    return UpdateFeaturesResponse(error_code=code, error_message=message or None)


def _upgrade_type(version: int, update: FeatureUpdateKey) -> int:
    if version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type
