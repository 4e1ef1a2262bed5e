"""What a client makes of a broker depends on the versions that it is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ottla.api import api_versions
from ottla.api.context import RequestContext
from ottla.api.table import APIS
from ottla.wire.messages.api_versions import ApiVersionsRequest
from tests.unit.core.controller.cluster import Cluster


def told() -> dict[int, tuple[int, int]]:
    services = SimpleNamespace(image=Cluster().image)
    context = cast(RequestContext, SimpleNamespace(services=services, api_version=4))
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    return {api.api_key: (api.min_version, api.max_version) for api in api_versions.handle(context, request).api_keys}


def test_older_librdkafka_compresses_because_produce_is_told_from_version_0_on() -> None:
    assert told()[0] == (0, 13)


def test_every_other_api_is_told_as_it_is_served() -> None:
    assert {key: versions for key, versions in told().items() if key} == {
        api.key: (api.min_version, api.max_version) for api in APIS if api.key
    }
