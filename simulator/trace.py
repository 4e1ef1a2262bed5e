"""What happened in a run, for a person to read: lines with a time and a place. Kept only when somebody asked for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from simulator.frame_names import frame_name

if TYPE_CHECKING:
    from simulator.network import End
    from simulator.timeline import Timeline


class Line(NamedTuple):
    """Something that happened at a place."""

    time_us: int
    place: str
    kind: str
    text: str


class Arrow(NamedTuple):
    """A frame from one place to another."""

    sent_us: int
    arrived_us: int
    source: str
    target: str
    text: str


class Trace:
    """Collects; `text` in `trace_text` and `picture` show it."""

    __slots__ = ("_names", "arrows", "lines", "timeline", "wanted", "wants_frames")

    def __init__(self, timeline: Timeline, *, wanted: bool) -> None:
        self.timeline = timeline
        self.wanted = wanted
        self.wants_frames = wanted
        self.lines: list[Line] = []
        self.arrows: list[Arrow] = []
        self._names: dict[tuple[int, int], str] = {}
        """What was asked, by connection and correlation id, so that an answer can be named."""

    def note(self, place: str, kind: str, text: str) -> None:
        if self.wanted:
            self.lines.append(Line(self.timeline.now_us, place, kind, text))

    def frame(self, sender: End, frame: bytes | None, arrival_us: int) -> None:
        if frame is None:
            name = "close"
        else:
            is_request = sender.number % 2 == 0
            name = frame_name(frame, sender.number // 2, self._names, is_request=is_request)
        self.arrows.append(Arrow(self.timeline.now_us, arrival_us, sender.host, sender.peer.host, name))
