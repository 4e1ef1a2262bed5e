"""What a broker answers before it is ready: its peers at once, its clients as soon as it can.

Theory of operation. A node of a quorum has to hear its peers long before it knows the cluster's metadata, on the same
listeners that clients use. Until `open` is called, requests of the quorum and to the controller are served, and all
others wait here; then they are served in the order they came. So a client that meets a starting broker waits a moment,
and never sees metadata from before the stop.
"""

from __future__ import annotations

from typing import Final

from ottla.api.deferred import Deferred
from ottla.model.chunks import Chunks
from ottla.model.errors import MalformedMessageError
from ottla.model.ids import METADATA_TOPIC_ID
from ottla.server.connection import Dispatch
from ottla.server.dispatch import Peer
from ottla.wire.headers import parse_request_header

WAITING_BYTES_MAX: Final = 64 << 20
"""Held for clients before the broker is ready; a client beyond that is sent away and comes again."""
FETCH: Final = 1
EARLY_KEYS: Final = frozenset(
    {
        18,  # ApiVersions
        52,  # Vote
        53,  # BeginQuorumEpoch
        54,  # EndQuorumEpoch
        55,  # DescribeQuorum
        56,  # AlterPartition
        58,  # Envelope
        59,  # FetchSnapshot
        62,  # BrokerRegistration
        63,  # BrokerHeartbeat
        67,  # AllocateProducerIds
        70,  # ControllerRegistration
        73,  # AssignReplicasToDirs
        80,  # AddRaftVoter
        81,  # RemoveRaftVoter
        82,  # UpdateRaftVoter
    }
)


class _Waiting:
    """A request, and the answer that is owed to it. Its bytes are its own: a batch is changed where it lies."""

    __slots__ = ("_answer", "_frame", "_peer", "owed")

    def __init__(self, peer: Peer, frame: bytearray) -> None:
        self.owed = Deferred(self._let_go)
        self._peer = peer
        self._frame = frame
        self._answer: Deferred | None = None

    def serve(self, dispatch: Dispatch) -> None:
        if self.owed.cancelled:
            return
        answer = dispatch(self._peer, memoryview(self._frame))
        if isinstance(answer, Deferred):
            self._answer = answer
            answer.listen(lambda: self.owed.complete(answer.chunks))
        else:
            self.owed.complete(answer or [])

    def _let_go(self) -> None:
        """The client has gone."""
        if self._answer is not None:
            self._answer.cancel()


class Gate:
    """Stands before a dispatcher; `open` lets everything through, from then on without a look."""

    __slots__ = ("_dispatch", "_waiting", "_waiting_bytes", "is_open")

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._waiting: list[_Waiting] = []
        self._waiting_bytes = 0
        self.is_open = False

    def dispatch(self, peer: Peer, frame: memoryview) -> Chunks | Deferred | None:
        """As `Dispatcher.dispatch`."""
        if self.is_open or _is_early(frame):
            return self._dispatch(peer, frame)
        if self._waiting_bytes + len(frame) > WAITING_BYTES_MAX:
            peer.refuse("the broker is starting, and too many requests wait for it already")
            return None
        waiting = _Waiting(peer, bytearray(frame))
        self._waiting.append(waiting)
        self._waiting_bytes += len(frame)
        return waiting.owed

    def open(self) -> None:
        """The broker is ready: serve what waits."""
        self.is_open = True
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            request.serve(self._dispatch)


def _is_early(frame: memoryview) -> bool:
    try:
        key = parse_request_header(frame).api_key
    except MalformedMessageError:
        return True  # The dispatcher knows what to say.
    return key in EARLY_KEYS or (key == FETCH and METADATA_TOPIC_ID.bytes in bytes(frame))
