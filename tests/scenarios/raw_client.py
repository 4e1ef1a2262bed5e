"""Kafka's protocol spoken by hand, so that a test can say exactly what it sends, and see exactly what comes back."""

from __future__ import annotations

import socket
import struct
import time

from ottla.wire import fetch_client, produce_client
from ottla.wire.batch import iterate
from ottla.wire.fetch_types import FetchPartition
from ottla.wire.headers import encode_request, parse_response_header, request_header
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.produce import ProducedPartition
from ottla.wire.records import Record, build_batch
from ottla.wire.records import iterate as iterate_records
from ottla.wire.schema import Message, decode

PRODUCE, FETCH = 0, 1


class RawClient:
    """One connection."""

    def __init__(self, host: str, port: int, timeout_seconds: float = 20.0) -> None:
        self.socket = socket.create_connection((host, port), timeout=timeout_seconds)
        self._correlation = 0

    @classmethod
    def connect(cls, bootstrap_servers: str) -> RawClient:
        host, port = bootstrap_servers.rsplit(":", 1)
        return cls(host, int(port))

    def close(self) -> None:
        self.socket.close()

    def send_frame(self, body: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(body)) + body)

    def receive_frame(self) -> bytes:
        """The next answer; EOFError if the broker closed the connection."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            try:
                part = self.socket.recv(size - len(parts))
            except ConnectionResetError as error:
                raise EOFError from error
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def is_closed(self) -> bool:
        """Wait for the broker to close; an answer instead is a failure of the test."""
        try:
            self.receive_frame()
        except EOFError:
            return True
        return False

    # -- whole requests

    def call(self, message: Message, version: int, answer: type[Message]) -> Message:
        self._correlation += 1
        self.send_frame(encode_request(message, version, self._correlation, "raw"))
        frame = self.receive_frame()
        api_key = message.__schema__.api_key  # type: ignore[union-attr]
        assert api_key is not None
        correlation, position = parse_response_header(api_key, version, frame)
        assert correlation == self._correlation
        return decode(answer, frame, version, position)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)
        assert isinstance(answer, CreateTopicsResponse)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    def produce(self, topic: str, *values: bytes, version: int = 9) -> tuple[int, int]:
        """Error code and base offset."""
        now_ms = int(time.time() * 1000)
        return self.produce_batch(
            topic, build_batch([Record(n, now_ms, None, value, ()) for n, value in enumerate(values)]), version=version
        )

    def produce_batch(
        self, topic: str, batch: bytes | bytearray, *, version: int = 9, acks: int = -1
    ) -> tuple[int, int]:
        outcome = self.produce_outcome(topic, batch, version=version, acks=acks)
        return outcome.error_code, outcome.base_offset

    def produce_outcome(
        self, topic: str, batch: bytes | bytearray, *, version: int = 9, acks: int = -1
    ) -> ProducedPartition:
        """All that the broker says."""
        self.send_frame(self.produce_frame(topic, batch, version=version, acks=acks))
        frame = memoryview(self.receive_frame())
        _, position = parse_response_header(PRODUCE, version, frame)
        ((_, (partition,)),) = produce_client.parse_response(frame, position, version).topics
        return partition

    def produce_frame(self, topic: str, batch: bytes | bytearray, *, version: int = 9, acks: int = -1) -> bytes:
        self._correlation += 1
        header = request_header(PRODUCE, version, self._correlation, "raw")
        return header + produce_client.encode_request(version, [(topic, [(0, batch)])], acks=acks)

    def values(self, topic: str, offset: int = 0, *, partition: int = 0) -> list[bytes | None]:
        """The values from `offset` on, in as many fetches as it takes."""
        values: list[bytes | None] = []
        while True:
            records = self._fetch(topic, partition, offset)
            for start, header in iterate(records):
                batch = iterate_records(records[start : start + header.size])
                values += [record.value for record in batch if record.offset >= offset]
                next_offset = header.last_offset + 1
            if not records:
                return values
            offset = next_offset

    def _fetch(self, topic: str, partition: int, offset: int) -> bytes:
        self._correlation += 1
        wanted = FetchPartition(partition, -1, offset, -1, -1, 10 << 20)
        request = fetch_client.fetch_request([(topic, [wanted])], max_wait_ms=0)
        self.send_frame(request_header(FETCH, 12, self._correlation, "raw") + fetch_client.encode_request(12, request))
        frame = memoryview(self.receive_frame())
        _, position = parse_response_header(FETCH, 12, frame)
        ((_, (data,)),) = fetch_client.parse_response(frame, position, 12).topics
        assert data.error_code == 0, data
        return bytes(data.records or b"")  # type: ignore[arg-type]
