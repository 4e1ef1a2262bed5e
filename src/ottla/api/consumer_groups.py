"""Whether consumer groups (KIP-848) are to be had here, by the cluster's level and by this broker's config."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.core.controller.feature_levels import GROUP_VERSION
from ottla.model.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.api.context import Services

PROTOCOL: Final = "consumer"


def check_offered(services: Services) -> None:
    """Raise what Kafka says where they are switched off."""
    if services.image.feature_level(GROUP_VERSION) < 1:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, "the cluster's group.version is 0: no consumer groups; use classic ones"
        )
    if PROTOCOL not in services.config.group_coordinator_rebalance_protocols:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "this broker does not offer consumer groups; use classic ones")
