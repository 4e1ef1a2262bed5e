"""Feature levels are described and changed by a client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla
from ottla.client.cluster import Cluster
from ottla.client.errors import BrokerError
from ottla.client.features import Feature, Features, LevelChange
from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode


@pytest.fixture
def features(tmp_path: Path) -> Iterator[Features]:
    """Of a broker of its own: levels are the whole cluster's."""
    with (
        ottla.Server(data=tmp_path / "data") as server,
        Cluster(ClientSettings.of(server.bootstrap_servers)) as cluster,
    ):
        yield Features(cluster)


def test_levels_are_tried_changed_and_described(features: Features) -> None:
    assert [tuple(feature) for feature in features.describe()] == [
        ("eligible.leader.replicas.version", 1, 0, 1),
        ("group.version", 1, 0, 1),
        ("kraft.version", 1, 0, 1),
        ("metadata.version", 30, 7, 30),
        ("transaction.version", 2, 0, 2),
    ]
    lower = {"group.version": 0, "transaction.version": 1}
    features.update(lower, LevelChange.SAFE_DOWNGRADE, validate_only=True)
    assert Feature("group.version", 1, 0, 1) in features.describe()
    features.update(lower, LevelChange.SAFE_DOWNGRADE)
    assert Feature("group.version", 0, 0, 1) in features.describe()
    assert Feature("transaction.version", 1, 0, 2) in features.describe()


def test_a_refusal_names_every_feature_and_changes_none(features: Features) -> None:
    before = features.describe()
    with pytest.raises(BrokerError) as refused:
        features.update({"share.version": 1, "streams.version": 1, "group.version": 0}, LevelChange.UPGRADE)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    for name in ("share.version", "streams.version", "group.version"):
        assert name in str(refused.value)
    assert features.describe() == before
