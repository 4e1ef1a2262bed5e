"""Which frames of a receive are served one by one, which together, and which are taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.server.frame_serving import FRAMES_PER_TURN_MAX, FrameServing, FrameShare, produce_frames

TAKEN_BYTES = 20
FETCH = b"\0\1" + bytes(30)
SHORT, LONG = bytes(10), bytes(30)
"""Produce requests."""


class Serving(FrameServing):
    """Notes what happens to frames, by their size."""

    taken_bytes_max = TAKEN_BYTES
    serves_at_most = FRAMES_PER_TURN_MAX
    """Of those that lie together, before one of them has to be served alone."""
    _alive, _corked, _paused, _kept = True, False, False, b""

    def __init__(self) -> None:
        self.did: list[tuple[str, Any]] = []
        self.taken = 0
        self._owed = None
        self._produce = SimpleNamespace(take=self._taken, settle=self._settled)

    @property
    def _share(self) -> FrameShare:
        turn = SimpleNamespace(produce=self._produce)
        return cast(FrameShare, SimpleNamespace(request_bytes_max=1000, turn=turn))

    def receive(self, *frames: bytes) -> list[tuple[str, Any]]:
        data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
        self._take_frames(memoryview(data), len(data))
        return self.did

    def _taken(self, asker: object, view: memoryview, start: int, stop: int) -> bool:
        self.taken += 1
        self.did.append(("take", stop - start))
        return True

    def _settled(self) -> None:
        self.taken = 0
        self.did.append(("settle", None))

    def _serve(self, frame: memoryview) -> None:
        self.did.append(("serve", len(frame)))

    def _serve_together(self, frames: list[memoryview]) -> int:
        self.did.append(("together", [len(frame) for frame in frames]))
        self._paused = self.serves_at_most < len(frames)
        return min(self.serves_at_most, len(frames))

    def _postpone(self, frames: memoryview) -> None:
        self.did.append(("postpone", len(frames)))

    def _refuse_length(self, length: int, prefix: bytes) -> None:
        self.did.append(("refuse", length))

    def _keep(self, rest: memoryview, wanted_bytes: int) -> None: ...

    def _take_answer(self, answer: Chunks | Deferred) -> None: ...

    def _take_answers(self, data: bytes) -> None: ...

    def refuse(self, reason: str) -> None: ...

    def settled(self, data: bytes) -> None: ...

    def settled_later(self, answer: Deferred) -> None: ...

    def serve_taken(self, frame: memoryview) -> None: ...

    def taken_failed(self, error: Exception) -> None: ...


@pytest.mark.parametrize(
    ("frames", "did"),
    [
        ([LONG, LONG, SHORT, FETCH, LONG], [("together", [30, 30, 10]), ("serve", 32), ("together", [30])]),
        ([SHORT, LONG, LONG], [("take", 10), ("settle", None), ("together", [30, 30])]),
        ([SHORT, FETCH, SHORT], [("take", 10), ("settle", None), ("serve", 32), ("take", 10)]),
        ([LONG], [("together", [30])]),
        ([LONG, FETCH], [("together", [30]), ("serve", 32)]),
        ([FETCH, b"123"], [("serve", 32), ("refuse", 3)]),
    ],
)
def test_long_produce_requests_that_lie_together_are_served_together(frames: list[bytes], did: list[Any]) -> None:
    assert Serving().receive(*frames) == did


def test_those_behind_a_request_that_is_served_alone_wait_for_another_turn() -> None:
    serving = Serving()
    serving.serves_at_most = 1
    assert serving.receive(LONG, LONG, LONG, FETCH) == [("together", [30] * 3), ("postpone", 34 * 2 + 36)]


def test_nothing_is_taken_while_an_older_answer_is_owed() -> None:
    serving = Serving()
    serving._owed = cast(Any, [Deferred()])
    assert serving.receive(SHORT, SHORT) == [("serve", 10), ("serve", 10)]


def test_a_turn_has_a_bounded_number_of_frames_however_they_are_served() -> None:
    did = Serving().receive(FETCH, *[LONG] * (FRAMES_PER_TURN_MAX + 4))
    assert did[1:] == [("together", [30] * (FRAMES_PER_TURN_MAX - 1)), ("postpone", 5 * 34)]


def test_the_frames_of_a_group_are_whole_produce_requests() -> None:
    data = memoryview(b"".join(len(frame).to_bytes(4, "big") + frame for frame in (LONG, SHORT, LONG, FETCH)))
    assert [len(frame) for frame in produce_frames(data, 0, len(data), 10, 1000)] == [30, 10, 30]
    assert [len(frame) for frame in produce_frames(data, 0, 60, 10, 1000)] == [30, 10]
    assert [len(frame) for frame in produce_frames(data, 0, len(data), 1, 1000)] == [30]
