"""Topics, through librdkafka's admin client, which works with both systems."""

from __future__ import annotations

import time

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

from bench.errors import NotMeasured

TIMEOUT_S = 120
POLL_S = 0.02


def create(address: str, name: str, partitions: int, replicas: int = 1) -> None:
    """Returns when every partition has a leader that knows it is one, which may be later than the metadata says so."""
    admin = connect(address)
    try:
        admin.create_topics([NewTopic(name, partitions, replicas)], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    except (KafkaException, TimeoutError) as failure:
        raise NotMeasured(f"create topic: {failure!r}") from None
    deadline = time.monotonic() + TIMEOUT_S
    while not led(admin, name, partitions):
        if time.monotonic() > deadline:
            raise NotMeasured(f"{name}: not every partition has a leader after {TIMEOUT_S} s")
        time.sleep(POLL_S)


def led(admin: AdminClient, name: str, partitions: int) -> bool:
    """Does the leader of every partition answer for it?"""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = {TopicPartition(name, number): latest for number in range(partitions)}
    try:
        for answer in admin.list_offsets(ends, request_timeout=TIMEOUT_S).values():
            answer.result(TIMEOUT_S)
    except KafkaException:
        return False
    return True


def end_offsets(address: str, name: str, partitions: int) -> int:
    """The sum of the offsets that come next."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = {TopicPartition(name, number): latest for number in range(partitions)}
    admin = connect(address)  # Kept until the answers are there.
    try:
        answers = admin.list_offsets(ends, request_timeout=TIMEOUT_S)
        return sum(int(answer.result(TIMEOUT_S).offset) for answer in answers.values())
    except KafkaException as failure:
        raise NotMeasured(f"list offsets: {failure}") from None


def leaders(admin: AdminClient, name: str) -> dict[int, int]:
    """Who leads each partition, as a broker says; -1 where nobody does."""
    try:
        found = admin.list_topics(name, timeout=TIMEOUT_S).topics[name].partitions
    except KafkaException as failure:
        raise NotMeasured(f"metadata: {failure}") from None
    return {number: partition.leader for number, partition in found.items()}


def delete(address: str, name: str) -> None:
    admin = connect(address)  # Kept until the answer is there: its end would be the request's.
    try:
        admin.delete_topics([name], request_timeout=TIMEOUT_S)[name].result(TIMEOUT_S)
    except (KafkaException, TimeoutError) as failure:
        raise NotMeasured(f"delete topic: {failure!r}") from None


def connect(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0, "socket.timeout.ms": TIMEOUT_S * 1000})
