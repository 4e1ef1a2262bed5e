"""A broker that does what a test tells it: answers, refuses, keeps silent or hangs up."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

from ottla.client.settings import ClientSettings
from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.wire import produce
from ottla.wire.headers import parse_request_header, response_header
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.produce import ProducedPartition
from ottla.wire.schema import encode

TOPIC = "orders"
NODE_ID = 7
API_VERSIONS, METADATA, PRODUCE, INIT_PRODUCER_ID = 18, 3, 0, 22

Answer = Callable[[int, memoryview, int], bytes | None]
"""Takes version, frame and where the body begins; gives the body of the answer, or None to hang up."""


class ScriptedBroker:
    """Listens on a free port of this machine for as long as the `with` block lasts."""

    def __init__(self, partitions: int = 1, node_id: int = NODE_ID) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._connections: list[socket.socket] = []
        self.partitions = partitions
        self.node_id = node_id
        self.leader: ScriptedBroker = self
        """Who leads every partition, as this broker tells it."""
        self.port = self._listener.getsockname()[1]
        self.served: list[int] = []
        """The API keys of all requests, in order."""
        self.answers: dict[int, Answer] = {
            API_VERSIONS: self.api_versions,
            METADATA: self.metadata,
            INIT_PRODUCER_ID: self.init_producer_id,
        }
        self.offered = {API_VERSIONS: (0, 4), METADATA: (0, 13), PRODUCE: (3, 12), INIT_PRODUCER_ID: (0, 5)}
        self.producer_ids = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def settings(self, **changes: int) -> ClientSettings:
        """Settings that lead here and wait for nothing longer than a test may."""
        values: dict[str, Any] = {"connect_timeout_ms": 2_000, "request_timeout_ms": 2_000, "api_timeout_ms": 4_000}
        values |= {"retry_backoff_ms": 5, "retry_backoff_ms_max": 20, **changes}
        return replace(ClientSettings.of(self.bootstrap), **values)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._thread.join(5)

    def _accept(self) -> None:
        serving: list[threading.Thread] = []
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                break
            self._connections.append(connection)
            serving.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
            serving[-1].start()
        for thread in serving:
            thread.join(5)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection.makefile("rb") as stream:
            while head := stream.read(4):
                frame = memoryview(stream.read(int.from_bytes(head, "big")))
                header = parse_request_header(frame)
                self.served.append(header.api_key)
                body = self.answers[header.api_key](header.api_version, frame, header.body_position)
                if body is None:
                    break
                answer = response_header(header.api_key, header.api_version, header.correlation_id) + body
                connection.sendall(len(answer).to_bytes(4, "big") + answer)
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def api_versions(self, version: int, frame: memoryview, position: int) -> bytes:
        entries = [ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.offered.items()]
        return encode(ApiVersionsResponse(api_keys=entries), version)

    def metadata(self, version: int, frame: memoryview, position: int) -> bytes:
        led = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=self.leader.node_id,
                leader_epoch=1,
                replica_nodes=[NODE_ID],
                isr_nodes=[NODE_ID],
            )
            for index in range(self.partitions)
        ]
        answer = MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=known.node_id, host="127.0.0.1", port=known.port)
                for known in {self.node_id: self, self.leader.node_id: self.leader}.values()
            ],
            controller_id=self.leader.node_id,
            topics=[MetadataResponseTopic(name=TOPIC, topic_id=ZERO_UUID, partitions=led)],
        )
        return encode(answer, version)

    def init_producer_id(self, version: int, frame: memoryview, position: int) -> bytes:
        self.producer_ids += 1
        return encode(InitProducerIdResponse(producer_id=self.producer_ids, producer_epoch=0), version)

    def produces(
        self, *script: ErrorCode | None, record_errors: Sequence[tuple[int, str | None]] = ()
    ) -> list[memoryview]:
        """Answer one Produce after another with these codes (None: hang up), then with success; gives the batches."""
        steps = list(script)
        stored: list[memoryview] = []

        def answer(version: int, frame: memoryview, position: int) -> bytes | None:
            request = produce.parse(frame, position, version)
            code = steps.pop(0) if steps else ErrorCode.NONE
            outcomes = []
            for topic, partitions in request.topics:
                results = []
                for index, records in partitions:
                    if records is not None:
                        stored.append(records)
                    named = record_errors if code else ()
                    results.append(ProducedPartition(index, code or 0, len(stored) - 1, record_errors=named))
                outcomes.append((topic, results))
            if code is None:
                return None
            header_bytes = len(response_header(PRODUCE, version, 0))
            return produce.encode_response(version, 0, outcomes)[header_bytes:]

        self.answers[PRODUCE] = answer
        return stored
