"""Which brokers a notebook means when it says nothing."""

from __future__ import annotations

import pytest

import ottla.spark
from ottla.spark.sessions import DEFAULT_BOOTSTRAP, _options


def test_brokers_by_argument_environment_and_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    assert _options("t", None, {})["kafka.bootstrap.servers"] == DEFAULT_BOOTSTRAP
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "a:1")
    assert _options("t", None, {})["kafka.bootstrap.servers"] == "a:1"
    given = _options("t", "b:2", {"startingOffsets": "latest"})
    assert given == {"kafka.bootstrap.servers": "b:2", "subscribe": "t", "startingOffsets": "latest"}


def test_the_package_hands_out_its_names() -> None:
    for name in ottla.spark.__all__:
        assert callable(getattr(ottla.spark, name))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        ottla.spark.nonsense  # noqa: B018
