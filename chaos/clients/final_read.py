"""The full read at the end, by a client that has seen nothing before."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from chaos.clients.client import settings
from chaos.recording import Recording
from chaos.waiting import TooLate
from simulator.history import Place

READ_SECONDS_MAX: Final = 60.0


def read_all(bootstrap_servers: str, recording: Recording, places: list[Place], *, committed_only: bool) -> None:
    """Fill `recording.final`. TooLate if the end is not reached in time."""
    consumer = Consumer(
        settings(
            bootstrap_servers,
            group_id="final",
            enable_auto_commit=False,
            enable_partition_eof=True,
            isolation_level="read_committed" if committed_only else "read_uncommitted",
        )
    )
    try:
        ends: dict[Place, int] = {}
        for place in places:
            partition = TopicPartition(place.topic, place.partition)
            recording.final_start[place], ends[place] = consumer.get_watermark_offsets(partition, timeout=20)
            recording.final[place, committed_only] = []
        consumer.assign([TopicPartition(place.topic, place.partition, OFFSET_BEGINNING) for place in places])
        _read(consumer, recording, ends, committed_only)
    finally:
        consumer.close()


def _read(consumer: Consumer, recording: Recording, ends: dict[Place, int], committed_only: bool) -> None:
    unread = dict(ends)
    deadline = time.monotonic() + READ_SECONDS_MAX
    while unread:
        if time.monotonic() > deadline:
            rest = ", ".join(f"{place} to {end}" for place, end in unread.items())
            raise TooLate(f"the last read did not come to its end within {READ_SECONDS_MAX:.0f} s: {rest}")
        for message in consumer.consume(1000, 0.2):
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            place, error = Place(topic, partition), message.error()
            if error is None:
                value = message.value()
                assert value is not None
                assert offset is not None
                recording.final[place, committed_only].append((offset, int(value)))
            elif error.code() == KafkaError._PARTITION_EOF and offset is not None and offset >= ends[place]:
                # Before that, an open transaction ends what can be read.
                unread.pop(place, None)


def committed_offsets(bootstrap_servers: str, group: str, places: list[Place]) -> dict[Place, int]:
    """How far a group has come."""
    consumer = Consumer(settings(bootstrap_servers, group_id=group, enable_auto_commit=False))
    try:
        wanted = [TopicPartition(place.topic, place.partition) for place in places]
        found = consumer.committed(wanted, timeout=30)
        return {Place(row.topic, row.partition): row.offset for row in found if row.offset >= 0}
    finally:
        consumer.close()
