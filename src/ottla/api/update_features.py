"""UpdateFeatures 0-2: moves feature levels of the cluster, all of them or none."""

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
    return failed(request, outcome.code, outcome.message or "", ctx.api_version)


def failed(request: UpdateFeaturesRequest, code: ErrorCode, message: str, _version: int) -> UpdateFeaturesResponse:
    """All updates share one outcome."""
    return UpdateFeaturesResponse(
        error_code=code,
        error_message=message or None,
        results=[
            UpdatableFeatureResult(feature=update.feature, error_code=code, error_message=message or None)
            for update in request.feature_updates
        ],
    )


def _upgrade_type(version: int, update: FeatureUpdateKey) -> int:
    if version == 0:
        return SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    return update.upgrade_type
