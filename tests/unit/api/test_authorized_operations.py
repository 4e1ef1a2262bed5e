"""What may be done with a resource, bit by bit, as Apache Kafka 4.3 answers where it has no authorizer."""

from __future__ import annotations

from ottla.api.authorized_operations import ON_CLUSTER, ON_GROUP, ON_TOPIC


def test_the_bits_are_those_of_kafka() -> None:
    assert (ON_TOPIC, ON_CLUSTER, ON_GROUP) == (3576, 8096, 3400)
