"""A broker to talk to. OTTLA_TEST_BOOTSTRAP=host:port names another one, Apache Kafka for example."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.settings import ClientSettings

NewTopic = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of a broker."""
    named = os.environ.get("OTTLA_TEST_BOOTSTRAP")
    if named:
        return named
    server = request.getfixturevalue("ottla_server")
    return str(server.bootstrap_servers)


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientSettings.of(bootstrap)) as connected:
        yield connected


@pytest.fixture
def admin(cluster: Cluster) -> Admin:
    return Admin(cluster)


@pytest.fixture
def new_topic(admin: Admin) -> Iterator[NewTopic]:
    """Makes topics with names of their own; they are gone after the test."""
    made: list[str] = []

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"client-{uuid.uuid4().hex[:12]}"
        given = {key.replace("_", "."): value for key, value in configs.items()}
        admin.create_topic(name, partitions=partitions, configs=given)
        made.append(name)
        return name

    yield make
    for name in made:
        admin.delete_topic(name)
