"""The table names each API once, with messages that belong together and versions that Kafka has."""

from __future__ import annotations

import importlib
import pkgutil

import pytest
from kio.schema.index import api_key_map

from ottla.api.entry import Api, declared_api
from ottla.api.table import APIS, BY_KEY
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

NOT_SERVED = {"InitProducerId": 6, "BrokerHeartbeat": 2}
"""Versions that Kafka 4.3 has and does not offer, or that carry what Ottla does not have: cordoned directories."""


def named(api: Api) -> str:
    return api.name


def test_every_api_is_there_once() -> None:
    assert len(BY_KEY) == len(APIS) == len({api.name for api in APIS})


@pytest.mark.parametrize("api", APIS, ids=named)
def test_the_versions_are_those_of_kafka(api: Api) -> None:
    package = importlib.import_module(f"kio.schema.{api_key_map[api.key]}")
    versions = {int(module.name[1:]) for module in pkgutil.iter_modules(package.__path__)} - {NOT_SERVED.get(api.name)}
    assert set(range(api.min_version, api.max_version + 1)) == versions


@pytest.mark.parametrize("api", [api for api in APIS if not api.hot], ids=named)
def test_a_request_and_its_response_belong_together(api: Api) -> None:
    assert api.request is not None
    assert api.response is not None
    asked, answered = api.request.__schema__, api.response.__schema__
    assert asked is not None
    assert answered is not None
    assert (asked.api_key, asked.versions, asked.flexible_since) == (
        answered.api_key,
        answered.versions,
        answered.flexible_since,
    )
    assert api.response.__name__ == f"{api.name}Response"


@pytest.mark.parametrize("api", APIS, ids=named)
def test_versions_are_served_from_the_first_to_the_last(api: Api) -> None:
    assert api.supports(api.min_version)
    assert api.supports(api.max_version)
    assert not api.supports(api.min_version - 1)
    assert not api.supports(api.max_version + 1)


def test_what_is_no_request_is_no_api() -> None:
    handler = BY_KEY[12].handler
    with pytest.raises(TypeError, match="no request"):
        declared_api(ConsumerProtocolAssignment, HeartbeatResponse, handler, None)  # type: ignore[arg-type]
    assert declared_api(HeartbeatRequest, HeartbeatResponse, handler, None).name == "Heartbeat"  # type: ignore[arg-type]
