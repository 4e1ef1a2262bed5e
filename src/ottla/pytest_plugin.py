"""Fixtures for tests that need a broker; installed with the package, used by naming them.

def test_orders(ottla_server, ottla_topic):
    producer = Producer({"bootstrap.servers": ottla_server.bootstrap_servers})
    producer.produce(ottla_topic, b"hello")
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.embed import Server

TOPIC_NAME_LENGTH_KEPT = 80


@pytest.fixture(scope="session")
def ottla_server_config() -> dict[str, object]:
    """Broker config of `ottla_server`; override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def ottla_server(ottla_server_config: dict[str, object]) -> Iterator[Server]:
    """One broker for the whole test session, in a temporary directory, on a free port of 127.0.0.1."""
    from ottla.embed import Server

    with Server(config=ottla_server_config) as server:
        yield server


@pytest.fixture(scope="session")
def ottla_cluster_config() -> dict[str, object]:
    """Config of each broker of `ottla_cluster`; override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def ottla_cluster(ottla_cluster_config: dict[str, object]) -> Iterator[Server]:
    """Three brokers for the whole test session: topics have three replicas, and two of them must have a record."""
    from ottla.embed import Server

    with Server(config=ottla_cluster_config, brokers=3) as cluster:
        yield cluster


@pytest.fixture
def ottla_topic(ottla_server: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a new topic with one partition, named after the test and gone after it.

    `@pytest.mark.parametrize("ottla_topic", [4], indirect=True)` gives it four partitions.
    """
    from ottla.client.admin import Admin
    from ottla.client.errors import NotFoundError

    partitions = int(getattr(request, "param", 1))
    readable = re.sub(r"[^a-zA-Z0-9._-]", "-", request.node.name)[:TOPIC_NAME_LENGTH_KEPT]
    name = f"{readable}-{id(request):x}"
    with Admin.connect(ottla_server.bootstrap_servers) as admin:
        admin.create_topic(name, partitions=partitions)
        yield name
        # What is tested may have deleted it.
        with contextlib.suppress(NotFoundError):
            admin.delete_topic(name)
