"""The network as the runtime may touch it: streams of frames to other nodes. The simulator hands in another one.

A frame is what stands behind a size on the wire: a request with its header, or an answer with its own. Frames of one
stream arrive in order or not at all, and once one is lost so is all that follows it: then the stream is closed.
"""

from __future__ import annotations

from typing import Protocol

from ottla.model.errors import OttlaError


class PeerError(OttlaError):
    """A peer could not be reached, went away, or did not answer in time. Whether it did what was asked is unknown."""

    def __init__(self, address: str, reason: str, *, refused: bool = False) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason
        self.refused = refused
        """Nobody listens there: its machine says that the process is gone."""


class StreamHandler(Protocol):
    """Whoever opened a stream. Called on the loop."""

    def frame_received(self, frame: memoryview) -> None:
        """A whole frame; it may be kept only as a copy."""

    def stream_closed(self, error: PeerError) -> None:
        """Called once; nothing comes afterwards. Not called after `Stream.close`."""


class Stream(Protocol):
    """An open stream."""

    def send(self, frame: bytes | bytearray) -> None:
        """Queue a frame, size not included. Never blocks; a stream that is closed drops it."""

    def close(self) -> None: ...


class Network(Protocol):
    """Opens streams."""

    async def connect(self, host: str, port: int, handler: StreamHandler) -> Stream:
        """PeerError if nobody answers there."""
