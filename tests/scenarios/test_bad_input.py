"""Whatever arrives on the port, the broker stays up, writes nothing it should not, and disturbs nobody else."""

from __future__ import annotations

import os
import random
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ottla
from ottla.client.admin import Admin
from ottla.model.errors import ErrorCode
from ottla.wire.batch import CONTROL_BIT
from ottla.wire.compression import Codec
from ottla.wire.crc import crc32c
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from ottla.wire.records import Record, build_batch
from tests.measured import peak_bytes
from tests.scenarios.raw_client import RawClient

NOW_MS = int(time.time() * 1000)


@pytest.fixture(scope="module")
def server() -> Iterator[ottla.Server]:
    with ottla.Server(config={"auto.create.topics.enable": False}) as server:
        with_topic = RawClient.connect(server.bootstrap_servers)
        with_topic.create_topic("t")
        with_topic.close()
        yield server


@pytest.fixture
def client(server: ottla.Server) -> Iterator[RawClient]:
    client = RawClient.connect(server.bootstrap_servers)
    yield client
    client.close()


@pytest.fixture
def untouched(server: ottla.Server) -> Iterator[None]:
    """What is in the log stays as it is, and another client is served afterwards."""
    before = log_bytes(server)
    yield
    assert log_bytes(server) == before, "something was written"
    other = RawClient.connect(server.bootstrap_servers)
    assert other.values("t") is not None
    other.close()


def log_bytes(server: ottla.Server) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(server.data, "t-0").glob("*.log")))


def one_batch(value: bytes = b"value") -> bytearray:
    return build_batch([Record(0, NOW_MS, None, value, ())])


def reseal(batch: bytearray) -> bytearray:
    """Make the CRC right again, so that only the lie is wrong."""
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


BOMB_BYTES = {Codec.GZIP: 200 << 20, Codec.SNAPPY: 16 << 20, Codec.LZ4: 200 << 20, Codec.ZSTD: 200 << 20}
"""What a megabyte may stand for."""
FRAMES = {
    "negative length": struct.pack(">i", -1),
    "length zero": struct.pack(">i", 0),
    "length of two gigabytes": struct.pack(">i", 2**31 - 1),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls client hello": bytes.fromhex("160301020001000000") + bytes(64),
    "unknown api key": struct.pack(">ihhih", 10, 9999, 0, 1, -1),
    "unknown version": struct.pack(">ihhih", 10, 3, 999, 1, -1),
    "header cut short": struct.pack(">ih", 2, 3),
    "array longer than the frame": struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    "overlong varint": struct.pack(">ihhihb", 20, 3, 12, 1, -1, 0) + b"\xff" * 9,
    "text that is no utf-8": struct.pack(">ihhihih", 18, 3, 1, 1, -1, 1, 2) + b"\xff\xfe",
    "bytes after the message": struct.pack(">ihhihh", 17, 10, 0, 1, -1, 1) + b"g" + b"1234",
}


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
def test_a_frame_that_is_none_closes_its_own_connection_only(client: RawClient, frame: bytes) -> None:
    client.socket.sendall(frame)

    assert client.is_closed()


@pytest.mark.usefixtures("untouched")
def test_an_unsupported_apiversions_version_is_answered(client: RawClient) -> None:
    client.send_frame(struct.pack(">hhihb", 18, 99, 7, -1, 0))
    answer = client.receive_frame()

    assert struct.unpack_from(">ih", answer) == (7, ErrorCode.UNSUPPORTED_VERSION)


def lie(position: int, layout: str, value: int) -> bytearray:
    batch = one_batch()
    struct.pack_into(layout, batch, position, value)
    return reseal(batch)


def with_bad_crc() -> bytearray:
    batch = one_batch()
    batch[-1] ^= 1
    return batch


BATCHES = {
    "bad crc": (with_bad_crc(), ErrorCode.CORRUPT_MESSAGE),
    "wrong record count": (lie(57, ">i", 7), ErrorCode.INVALID_RECORD),
    "last offset delta that does not fit": (lie(23, ">i", 5), ErrorCode.INVALID_RECORD),
    "no records": (lie(57, ">i", 0), ErrorCode.INVALID_RECORD),
    "length too long": (lie(8, ">i", 5000), ErrorCode.INVALID_RECORD),
    "length too short": (lie(8, ">i", 60), ErrorCode.INVALID_RECORD),
    "control batch": (lie(21, ">h", CONTROL_BIT), ErrorCode.INVALID_RECORD),
    "unknown codec": (lie(21, ">h", 6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    "old message format": (lie(16, ">b", 1), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    "two batches": (one_batch() + one_batch(), ErrorCode.INVALID_RECORD),
    "cut off": (one_batch()[:40], ErrorCode.INVALID_RECORD),
    "empty": (bytearray(), ErrorCode.INVALID_RECORD),
}


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("batch", "code"), BATCHES.values(), ids=BATCHES.keys())
def test_a_batch_that_lies_is_refused(client: RawClient, batch: bytearray, code: ErrorCode) -> None:
    assert client.produce_batch("t", batch) == (code, -1)


@pytest.mark.usefixtures("untouched")
def test_acks_that_do_not_exist_are_refused(client: RawClient) -> None:
    assert client.produce_batch("t", one_batch(), acks=5) == (ErrorCode.INVALID_REQUIRED_ACKS, -1)


@pytest.mark.usefixtures("untouched")
def test_a_failed_write_without_acks_closes_the_connection(client: RawClient) -> None:
    client.send_frame(client.produce_frame("no-such-topic", one_batch(), acks=0))

    assert client.is_closed()


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../../etc", "x" * 250, "", "tab\t", "ümlaut"])
def test_a_topic_name_that_is_none_is_refused(client: RawClient, server: ottla.Server, name: str) -> None:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    answer = client.call(CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse)

    assert isinstance(answer, CreateTopicsResponse)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.usefixtures("untouched")
def test_a_hundred_announced_giants_cost_no_memory(server: ottla.Server) -> None:
    before = resident_bytes()
    host, port = server.bootstrap_servers.split(":")
    giants = [socket.create_connection((host, int(port))) for _ in range(100)]
    for giant in giants:
        giant.sendall(struct.pack(">ihhih", 50_000_000, 0, 9, 1, -1) + b"\0" * 100)
    other = RawClient.connect(server.bootstrap_servers)
    assert other.values("t") is not None
    other.close()
    assert resident_bytes() - before < 20_000_000
    for giant in giants:
        giant.close()


@pytest.mark.parametrize("codec", list(Codec)[1:])
def test_a_bomb_for_a_topic_that_is_not_compressed_does_not_go_off_in_the_broker(
    server: ottla.Server, client: RawClient, codec: Codec
) -> None:
    topic = f"uncompressed-{codec.name.lower()}"
    with Admin.connect(server.bootstrap_servers) as admin:
        admin.create_topic(topic, partitions=1, configs={"compression.type": "uncompressed"})
    assert client.produce(topic, b"plain") == (ErrorCode.NONE, 0)
    bomb = build_batch([Record(0, NOW_MS, None, bytes(BOMB_BYTES[codec]), ())], codec=codec)
    answers: list[tuple[int, int]] = []
    peak = peak_bytes(lambda: answers.append(client.produce_batch(topic, bomb)))
    assert answers == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]
    assert peak < 20_000_000


def resident_bytes() -> int:
    """Of this process: the broker runs in a thread of it."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.usefixtures("untouched")
def test_one_byte_at_a_time_is_served_too(client: RawClient) -> None:
    frame = struct.pack(">ihhih", 10, 18, 0, 5, -1)
    for byte in frame:
        client.socket.sendall(bytes([byte]))
    assert struct.unpack_from(">ih", client.receive_frame()) == (5, 0)


@pytest.mark.fuzz
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=300)
@given(seed=st.integers(0, 2**32))
def test_mutated_real_frames_never_bring_the_broker_down(server: ottla.Server, seed: int) -> None:
    rng = random.Random(seed)
    client = RawClient.connect(server.bootstrap_servers)
    frames = [
        client.produce_frame("t", one_batch(), version=rng.choice([3, 7, 8, 9, 12])),
        struct.pack(">hhih", 3, rng.randrange(14), 1, -1) + bytes(rng.randrange(12)),
        struct.pack(">hhih", 1, rng.randrange(4, 19), 1, -1) + rng.randbytes(rng.randrange(80)),
        struct.pack(">hhih", rng.randrange(80), rng.randrange(10), 1, -1) + rng.randbytes(rng.randrange(60)),
    ]
    frame = bytearray(rng.choice(frames))
    for _ in range(rng.randrange(1, 6)):
        frame[rng.randrange(len(frame))] = rng.randrange(256)
    try:
        client.send_frame(bytes(frame))
        client.socket.shutdown(socket.SHUT_WR)
        client.receive_frame()
    except (EOFError, TimeoutError, OSError):
        pass  # Closed, which is an answer too.
    finally:
        client.close()
    alive = RawClient.connect(server.bootstrap_servers)
    alive.send_frame(struct.pack(">hhih", 18, 0, 5, -1))
    assert struct.unpack_from(">ih", alive.receive_frame()) == (5, 0)
    alive.close()
