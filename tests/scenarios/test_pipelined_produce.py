"""A producer with many requests on the way: all are answered in their order, and the log has them in that order."""

from __future__ import annotations

import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence

import pytest

import ottla
from ottla.api import produce
from ottla.api.context import Caller, Services
from ottla.api.produce_group import ProduceGroup
from ottla.server import frame_serving
from ottla.wire.headers import parse_response_header, request_header
from ottla.wire.produce_client import encode_request, parse_response
from ottla.wire.records import Record, build_batch
from tests.scenarios.raw_client import RawClient

PARTITIONS = 3
WIDE_PARTITIONS = 60
VERSION = 9
ROUNDS_MAX = 20
PRODUCE, API_VERSIONS = 0, 18


@pytest.fixture
def client() -> Iterator[RawClient]:
    with ottla.Server() as server:
        client = RawClient.connect(server.bootstrap_servers)
        client.create_topic("t", partitions=PARTITIONS)
        client.create_topic("wide", partitions=WIDE_PARTITIONS)
        yield client
        client.close()


class Pipeline:
    """Sends requests without waiting, and remembers what they said."""

    def __init__(self, client: RawClient) -> None:
        self._client = client
        self._correlation_id = 0
        self.sent: defaultdict[tuple[str, int], list[bytes]] = defaultdict(list)

    def produce(self, partitions: Sequence[int], size: int, acks: int = -1, topic: str = "t") -> bytes:
        parts = []
        for index in partitions:
            value = f"{self._correlation_id}.{index}".encode().ljust(size, b".")
            self.sent[topic, index].append(value)
            record = Record(0, int(time.time() * 1000), None, value, ())
            parts.append((index, bytes(build_batch([record]))))
        return self._frame(PRODUCE, VERSION, encode_request(VERSION, [(topic, parts)], acks=acks, timeout_ms=1000))

    def api_versions(self) -> bytes:
        return self._frame(API_VERSIONS, 0, b"")

    def _frame(self, key: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        frame = request_header(key, version, self._correlation_id, "pipeline") + body
        return struct.pack(">i", len(frame)) + frame

    def run(self, frames: Sequence[bytes], keys: Sequence[int | None]) -> None:
        """Send all at once; each answer must be that of its request, and without an error. None is not answered."""
        first = self._correlation_id - len(frames) + 1
        self._client.socket.sendall(b"".join(frames))
        for number, key in enumerate(keys, first):
            if key is None:
                continue
            answer = self._client.receive_frame()
            correlation_id, position = parse_response_header(key, VERSION if key == PRODUCE else 0, answer)
            assert correlation_id == number
            if key == PRODUCE:
                for _, rows in parse_response(memoryview(answer), position, VERSION).topics:
                    assert [row.error_code for row in rows] == [0] * len(rows)


def test_requests_that_come_together_keep_their_order(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []

    class Counted(ProduceGroup):
        def __init__(self, services: Services, caller: Caller, frames: Sequence[memoryview]) -> None:
            groups.append(len(frames))
            super().__init__(services, caller, frames)

    monkeypatch.setattr(frame_serving, "ProduceGroup", Counted)
    pipeline = Pipeline(client)
    for _ in range(ROUNDS_MAX):
        frames, keys = [], []
        for number in range(50):
            if number % 11 == 10:
                frames.append(pipeline.api_versions())
                keys.append(API_VERSIONS)
            elif number % 7 == 6:
                frames.append(pipeline.produce([number % PARTITIONS], 10))
                keys.append(PRODUCE)
            else:
                frames.append(pipeline.produce([2, 0, 1], 5000, acks=1 if number % 5 else -1))
                keys.append(PRODUCE)
        pipeline.run(frames, keys)
        if groups:
            break
    assert max(groups) > 1
    for index in range(PARTITIONS):
        assert client.values("t", partition=index) == pipeline.sent["t", index]


@pytest.mark.parametrize("size", [10, 5000])
def test_nothing_overtakes_a_request_that_waits_until_many_logs_are_open(client: RawClient, size: int) -> None:
    pipeline, every = Pipeline(client), range(WIDE_PARTITIONS)
    frames = [pipeline.produce([0, 1, 2], size)]
    frames += [pipeline.produce(every, size, topic="wide") for _ in range(3)]
    frames += [pipeline.produce([WIDE_PARTITIONS - 1], size, topic="wide"), pipeline.api_versions()]
    frames.append(pipeline.produce([WIDE_PARTITIONS - 1], size, topic="wide"))
    pipeline.run(frames, [*[PRODUCE] * 5, API_VERSIONS, PRODUCE])
    for (topic, index), values in pipeline.sent.items():
        assert client.values(topic, partition=index) == values


@pytest.mark.parametrize("size", [10, 5000])
def test_nothing_overtakes_a_request_of_very_many_partitions(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(produce, "PARTITIONS_INLINE_MAX", WIDE_PARTITIONS // 2)
    monkeypatch.setattr(produce, "PARTITIONS_PER_TURN", 8)
    pipeline, every = Pipeline(client), range(WIDE_PARTITIONS)
    last = [WIDE_PARTITIONS - 1]
    pipeline.run([pipeline.produce(every, size, topic="wide")], [PRODUCE])
    frames = [pipeline.produce(last, size, topic="wide")]
    frames += [pipeline.produce(every, size, acks=0, topic="wide") for _ in range(3)]
    frames += [pipeline.produce(last, size, topic="wide"), pipeline.api_versions()]
    frames.append(pipeline.produce(last, size, topic="wide"))
    pipeline.run(frames, [PRODUCE, *[None] * 3, PRODUCE, API_VERSIONS, PRODUCE])
    for (topic, index), values in pipeline.sent.items():
        assert client.values(topic, partition=index) == values
