"""A starting broker hears its peers, and lets its clients wait."""

from __future__ import annotations

from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.model.ids import METADATA_TOPIC_ID
from ottla.server.gate import WAITING_BYTES_MAX, Gate
from ottla.wire.headers import request_header

PRODUCE, FETCH, METADATA, VOTE = 0, 1, 3, 52


class Client:
    host, listener, principal = "h", "PLAINTEXT", "User:ANONYMOUS"

    def __init__(self) -> None:
        self.refusals: list[str] = []

    def refuse(self, reason: str) -> None:
        self.refusals.append(reason)


class Server:
    def __init__(self, answer: Chunks | Deferred | None) -> None:
        self.answer = answer
        self.frames: list[bytes] = []

    def dispatch(self, _peer: object, frame: memoryview) -> Chunks | Deferred | None:
        self.frames.append(bytes(frame))
        return self.answer


def frame(api_key: int, body: bytes = b"") -> memoryview:
    return memoryview(bytes(request_header(api_key, 0, 7, "c")) + body)


def test_peers_are_served_before_clients() -> None:
    server = Server([b"answer"])
    gate = Gate(server.dispatch)
    assert gate.dispatch(Client(), frame(VOTE)) == [b"answer"]
    assert gate.dispatch(Client(), frame(FETCH, METADATA_TOPIC_ID.bytes)) == [b"answer"]
    waiting = gate.dispatch(Client(), frame(METADATA))
    assert isinstance(waiting, Deferred)
    assert not waiting.done
    assert len(server.frames) == 2
    gate.open()
    assert waiting.chunks == [b"answer"]
    assert gate.dispatch(Client(), frame(METADATA)) == [b"answer"]


def test_what_a_producer_sends_to_a_starting_broker_can_be_written_when_it_is_ready() -> None:
    written: list[bytes] = []

    def write(_peer: object, request: memoryview) -> Chunks:
        request[-1:] = b"!"  # As the log writes the offset into a batch, where it lies.
        written.append(bytes(request[-3:]))
        return [b"written"]

    gate = Gate(write)
    received = bytearray(frame(PRODUCE, b"abc"))
    waiting = gate.dispatch(Client(), memoryview(received))
    received[-3:] = b"xyz"  # The next receive.
    gate.open()
    assert written == [b"ab!"]
    assert isinstance(waiting, Deferred)
    assert waiting.chunks == [b"written"]


def test_an_answer_that_comes_later_still_comes() -> None:
    later = Deferred()
    server = Server(later)
    gate = Gate(server.dispatch)
    waiting = gate.dispatch(Client(), frame(FETCH))
    assert isinstance(waiting, Deferred)
    gate.open()
    later.complete([b"late"])
    assert waiting.chunks == [b"late"]


def test_a_client_that_leaves_is_let_go() -> None:
    later, gone = Deferred(), []
    later = Deferred(lambda: gone.append(True))
    server = Server(later)
    gate = Gate(server.dispatch)
    early, late = gate.dispatch(Client(), frame(METADATA)), gate.dispatch(Client(), frame(FETCH))
    assert isinstance(early, Deferred)
    assert isinstance(late, Deferred)
    early.cancel()
    gate.open()
    assert len(server.frames) == 1
    late.cancel()
    assert gone == [True]


def test_what_waits_is_bounded() -> None:
    gate = Gate(Server(None).dispatch)
    client = Client()
    assert gate.dispatch(client, frame(METADATA, bytes(WAITING_BYTES_MAX - 100))) is not None
    assert gate.dispatch(client, frame(METADATA, bytes(200))) is None
    assert client.refusals
