"""A broker, and topics as tables without Spark's Java side."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.settings import ClientSettings
from pyspark_ottla import reader
from tests.unit.pyspark_ottla.tables import bootstrap_of

NewTopic = Callable[..., str]


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of a broker; OTTLA_TEST_BOOTSTRAP=host:port names another one, Apache Kafka for example."""
    return bootstrap_of(request)


@pytest.fixture(autouse=True)
def _no_connections_left() -> Iterator[None]:
    """A worker keeps its connections; a test does not."""
    yield
    for _, settings in list(reader._clusters):
        reader.drop_cluster(settings)


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(ClientSettings.of(bootstrap)) as connected:
        yield connected


@pytest.fixture
def new_topic(cluster: Cluster) -> Iterator[NewTopic]:
    """Makes topics with names of their own; they are gone after the test."""
    made: list[str] = []
    admin = Admin(cluster)

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"spark-{uuid.uuid4().hex[:12]}"
        admin.create_topic(
            name, partitions=partitions, configs={key.replace("_", "."): value for key, value in configs.items()}
        )
        made.append(name)
        return name

    yield make
    for name in made:
        admin.delete_topic(name)
