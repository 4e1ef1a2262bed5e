"""A member of a group that reads committed records and commits how far it is."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from chaos.clients.client import Client, settings
from chaos.recording import Recording
from simulator.history import OffsetUse, Place, Poll

COMMIT_SECONDS: Final = 0.5
CALL_SECONDS_MAX: Final = 10.0


class GroupReader(Client):
    """Notes what it reads, and the offsets that it commits and finds."""

    def __init__(
        self, name: str, bootstrap_servers: str, recording: Recording, seed: int, *, group: str, topic: str
    ) -> None:
        super().__init__(f"{name}/{group}", bootstrap_servers, recording, seed)
        self._group = group
        self._topic = topic
        self._generation = 0
        self._positions: dict[int, int] = {}

    def _run(self) -> None:
        consumer = Consumer(
            settings(
                self._bootstrap_servers,
                group_id=self._group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                session_timeout_ms=6000,
                heartbeat_interval_ms=500,
            )
        )
        consumer.subscribe([self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        commit_at = time.monotonic() + COMMIT_SECONDS
        try:
            while not self._stopping.is_set():
                self._take(consumer.consume(500, 0.1))
                if time.monotonic() >= commit_at:
                    self._commit(consumer)
                    commit_at = time.monotonic() + COMMIT_SECONDS
        finally:
            consumer.close()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._generation += 1
        self._positions = {}
        begun_us = self._recording.clock.now_us
        try:
            found = consumer.committed(partitions, timeout=CALL_SECONDS_MAX)
        except KafkaException as error:
            self._recording.failed(f"{self.name}: committed: {error.args[0].name()}")
            return
        for position in found:
            if position.error is None:
                self._positions[position.partition] = max(position.offset, 0)
                self._note(begun_us, position, is_read=True)

    def _revoked(self, consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._positions = {}

    def _take(self, messages: list[Message]) -> None:
        """Note a poll for each partition that it brought something of."""
        records: dict[int, list[tuple[int, int]]] = {}
        for message in messages:
            partition, offset, value = message.partition(), message.offset(), message.value()
            if message.error() is None and partition is not None and offset is not None and value is not None:
                records.setdefault(partition, []).append((offset, int(value)))
        for partition, rows in records.items():
            begin = self._positions.get(partition, rows[0][0])
            end = self._positions[partition] = rows[-1][0] + 1
            self._recording.poll(
                Poll(
                    time_us=self._recording.clock.now_us,
                    reader=self.name,
                    generation=self._generation,
                    place=Place(self._topic, partition),
                    committed_only=True,
                    begin=begin,
                    next_offset=end,
                    records=rows,
                )
            )

    def _commit(self, consumer: Consumer) -> None:
        offsets = [TopicPartition(self._topic, index, offset) for index, offset in self._positions.items()]
        if not offsets:
            return
        begun_us = self._recording.clock.now_us
        try:
            committed = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            self._recording.failed(f"{self.name}: commit: {error.args[0].name()}")
            return
        for position in committed or ():
            if position.error is None:
                self._note(begun_us, position, is_read=False)

    def _note(self, begun_us: int, position: TopicPartition, *, is_read: bool) -> None:
        if position.offset >= 0:
            place = Place(self._topic, position.partition)
            now_us = self._recording.clock.now_us
            self._recording.offsets.append(
                OffsetUse(begun_us, now_us, self._group, place, position.offset, is_read=is_read)
            )
