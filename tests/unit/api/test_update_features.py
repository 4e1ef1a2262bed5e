"""UpdateFeatures and what ApiVersions tells of it, as a client sees them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api import api_versions, update_features
from ottla.api.context import RequestContext
from ottla.model.errors import ErrorCode
from ottla.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from tests.unit.core.controller.cluster import Cluster
from tests.unit.core.controller.test_features import founded

UP, SAFE_DOWN = 1, 2


def context(cluster: Cluster, version: int) -> RequestContext:
    async def submit(command: Any) -> Any:
        return cluster.submit(command)

    services = SimpleNamespace(controller=SimpleNamespace(submit=submit), image=cluster.image)
    return cast(RequestContext, SimpleNamespace(services=services, api_version=version))


def update(cluster: Cluster, version: int, *updates: FeatureUpdateKey, dry: bool = False) -> UpdateFeaturesResponse:
    request = UpdateFeaturesRequest(feature_updates=list(updates), validate_only=dry)
    return asyncio.run(update_features.handle(context(cluster, version), request))


def versions(cluster: Cluster, version: int) -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return api_versions.handle(context(cluster, version), request)


def finalized(cluster: Cluster, version: int = 4) -> dict[str, int]:
    found = versions(cluster, version).finalized_features
    assert all(feature.min_version_level == feature.max_version_level for feature in found)
    return {feature.name: feature.max_version_level for feature in found}


def key(name: str, level: int, kind: int = UP, *, down: bool = False) -> FeatureUpdateKey:
    return FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind, allow_downgrade=down)


def test_clients_hear_what_is_supported_and_what_is_used() -> None:
    cluster = founded(Cluster())
    supported = {item.name: (item.min_version, item.max_version) for item in versions(cluster, 4).supported_features}
    assert supported == {
        "metadata.version": (7, 30),
        "kraft.version": (0, 1),
        "transaction.version": (0, 2),
        "group.version": (0, 1),
        "eligible.leader.replicas.version": (0, 1),
    }
    assert finalized(cluster) == finalized(cluster, 3) == {name: highest for name, (_, highest) in supported.items()}
    assert [item.name for item in versions(cluster, 3).supported_features] == ["metadata.version"]


def test_a_level_of_0_is_not_listed_and_one_that_no_record_says_is() -> None:
    cluster = Cluster()
    update(cluster, 2, key("metadata.version", 30))
    assert finalized(cluster) == {
        "metadata.version": 30,
        "kraft.version": 1,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
    }
    update(cluster, 2, key("group.version", 0, SAFE_DOWN))
    assert "group.version" not in finalized(cluster)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_change_has_one_outcome_and_takes_effect(version: int) -> None:
    cluster = founded(Cluster())
    lower = key("transaction.version", 1, SAFE_DOWN, down=True)
    if version > 0:
        assert update(cluster, version, lower, dry=True).error_code == ErrorCode.NONE
        assert finalized(cluster)["transaction.version"] == 2
    answer = update(cluster, version, lower)
    assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
    assert [(result.feature, result.error_code) for result in answer.results] == [("transaction.version", 0)]
    assert finalized(cluster)["transaction.version"] == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_refusal_is_told_once_as_by_kafka(version: int) -> None:
    answer = update(founded(Cluster()), version, key("group.version", 1), key("nope", 1))
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message is not None
    assert "nope" in answer.error_message
    assert list(answer.results) == []


def test_in_version_0_a_flag_allows_to_go_down() -> None:
    cluster = founded(Cluster())
    refused = update(cluster, 0, key("group.version", 0))
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, 0, key("group.version", 0, down=True)).error_code == ErrorCode.NONE
