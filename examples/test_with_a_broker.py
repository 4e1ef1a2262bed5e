"""A test of code that talks to Kafka, with a real broker and no container.

Run it with `pytest examples/test_with_a_broker.py`.
"""

from __future__ import annotations

from confluent_kafka import Consumer, Producer, TopicPartition

import ottla


def publish_order(bootstrap_servers: str, topic: str, order: bytes) -> None:
    """The code under test."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, order)
    producer.flush()


def test_an_order_arrives(ottla_server: ottla.Server, ottla_topic: str) -> None:
    publish_order(ottla_server.bootstrap_servers, ottla_topic, b"two coffees")

    settings = {"bootstrap.servers": ottla_server.bootstrap_servers, "group.id": "test", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(ottla_topic, 0, 0)])
    message = consumer.poll(10)
    consumer.close()

    assert message is not None
    assert message.value() == b"two coffees"
