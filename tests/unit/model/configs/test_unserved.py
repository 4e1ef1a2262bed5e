"""A broker does not promise what it does not keep."""

from __future__ import annotations

import pytest

from ottla.model.configs.broker import BROKER_CONFIGS
from ottla.model.configs.resolve import BrokerConfig
from ottla.model.configs.unserved import REFUSED, without_effect
from ottla.model.errors import ConfigError


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_protect_is_refused(name: str) -> None:
    value = "true" if name.endswith("enable") else "some.Thing"
    with pytest.raises(ConfigError, match=name):
        BrokerConfig.from_properties({name: value})


@pytest.mark.parametrize("name", REFUSED)
def test_as_it_is_by_default_it_may_stand_there(name: str) -> None:
    value = "false" if name.endswith("enable") else ""
    assert not BrokerConfig.from_properties({name: value}).get(name)


def test_what_is_refused_is_not_acted_on() -> None:
    assert not [name for name in REFUSED if BROKER_CONFIGS[name].effective]


def test_what_changes_nothing_is_named() -> None:
    given = {"num.io.threads": "8", "log.retention.ms": "1000", "queued.max.requests": "1000", "node.id": "3"}
    assert without_effect(given) == ["num.io.threads", "queued.max.requests"]
    assert without_effect({"listener.name.x.ssl.key.password": "k"}) == ["listener.name.x.ssl.key.password"]
