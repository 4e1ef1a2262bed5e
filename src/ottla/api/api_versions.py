"""ApiVersions 0-4: which APIs in which versions, and the feature levels of the cluster.

A version that is not served is answered in version 0 with UNSUPPORTED_VERSION (`server.dispatch` does that), so that
any client can find out. Produce is told from version 0 on, as Kafka tells it, though it is served from 3 on: older
librdkafka (2.0.2 for one) does not compress with gzip, snappy or lz4 otherwise, without a word. From version 3 on a
client names itself; a name that is none is refused with INVALID_REQUEST, as Kafka does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ottla.core.controller.feature_levels import KRAFT_VERSION, KRAFT_VERSION_LEVEL, SUPPORTED_FEATURES
from ottla.model.errors import ErrorCode
from ottla.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from ottla.api.context import RequestContext
    from ottla.api.entry import Api
    from ottla.core.controller.image import MetadataImage

CLIENT_NAMED_SINCE = 3
MINIMUM_ZERO_SINCE = 4
"""Older clients fail on a supported feature whose lowest level is 0."""
PRODUCE: Final = 0
PRODUCE_TOLD_SINCE: Final = 0
_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if ctx.api_version >= CLIENT_NAMED_SINCE and not _is_named(request):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
    image = ctx.services.image
    supported = {**SUPPORTED_FEATURES, KRAFT_VERSION: (0, KRAFT_VERSION_LEVEL)}
    return ApiVersionsResponse(
        api_keys=_api_keys(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=lowest, max_version=highest)
            for name, (lowest, highest) in supported.items()
            if lowest > 0 or ctx.api_version >= MINIMUM_ZERO_SINCE
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _finalized(image).items()
            if level > 0
        ],
    )


def _finalized(image: MetadataImage) -> dict[str, int]:
    """The levels of the cluster. While there is no metadata yet none is known but the quorum's own."""
    implied = {name: image.feature_level(name) for name in SUPPORTED_FEATURES} if image.features else {}
    return {**implied, **image.features, KRAFT_VERSION: KRAFT_VERSION_LEVEL}


def _is_named(request: ApiVersionsRequest) -> bool:
    return bool(_NAME.fullmatch(request.client_software_name) and _NAME.fullmatch(request.client_software_version))


def _api_keys() -> list[ApiVersion]:
    from ottla.api.table import APIS  # The table holds this handler.

    return [ApiVersion(api_key=api.key, min_version=_told_min(api), max_version=api.max_version) for api in APIS]


def _told_min(api: Api) -> int:
    """Who takes Produce at its word and sends a version below 3 loses the connection, as with Kafka."""
    return PRODUCE_TOLD_SINCE if api.key == PRODUCE else api.min_version
