"""ApiVersions: what the broker speaks, the first question of every client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Bool, Int16, Int32, Int64, Message, String, ignorable, since, tag


class ApiVersionsRequest(Message, api_key=18, versions=(0, 4), flexible_since=3):
    """Who asks; the broker counts its clients by name and version."""

    client_software_name: Annotated[String, since(3), ignorable] = ""
    client_software_version: Annotated[String, since(3), ignorable] = ""


class ApiVersion(Message):
    """The versions of one api."""

    api_key: Int16
    min_version: Int16
    max_version: Int16


class SupportedFeatureKey(Message):
    """The levels of a feature that this broker can work with."""

    name: String
    min_version: Int16
    max_version: Int16


class FinalizedFeatureKey(Message):
    """The level of a feature that the cluster works at."""

    name: String
    max_version_level: Int16
    min_version_level: Int16


class ApiVersionsResponse(Message, api_key=18, versions=(0, 4), flexible_since=3):
    """The apis and features of the broker. The epoch is -1 while no feature level is known."""

    error_code: Int16 = 0
    api_keys: Sequence[ApiVersion]
    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    supported_features: Annotated[Sequence[SupportedFeatureKey], since(3), tag(0), ignorable] = []
    finalized_features_epoch: Annotated[Int64, since(3), tag(1), ignorable] = -1
    finalized_features: Annotated[Sequence[FinalizedFeatureKey], since(3), tag(2), ignorable] = []
    zk_migration_ready: Annotated[Bool, since(3), tag(3), ignorable] = False
