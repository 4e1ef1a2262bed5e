"""A fetch session (KIP-227) as the follower keeps it: what the leader remembers of what was asked.

Theory of operation. The first request of a session names every partition; the answer gives it an id. Each later one
names what has changed since, and what is to be forgotten. So a thousand quiet partitions cost nothing, and the leader
answers with what is new. A leader that gives no id (0) has no room, and each request is whole again.

What an editor must keep true: `sent` is what the leader has for the session once it has handled the last request. After
any doubt (a lost connection, an error) the session is forgotten on this side, and the next request is whole.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

NO_SESSION: Final = 0
EPOCH_FIRST: Final = 0
EPOCH_MAX: Final = 2**31 - 1

Key = TypeVar("Key", bound=Hashable)


class Asked(NamedTuple):
    """What is asked of one partition."""

    leader_epoch: int
    fetch_offset: int
    last_epoch: int
    log_start_offset: int


class SessionRequest(NamedTuple, Generic[Key]):
    """The session's side of a request."""

    session_id: int
    epoch: int
    rows: list[tuple[Key, Asked]]
    forgotten: list[Key]

    @property
    def is_full(self) -> bool:
        return self.epoch == EPOCH_FIRST


class ReplicaSession(Generic[Key]):
    """What one fetcher and its leader have agreed on."""

    __slots__ = ("epoch", "id", "refused", "sent")

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = EPOCH_FIRST
        self.sent: dict[Key, Asked] = {}
        self.refused = False
        """The leader had no room for a session the last time it was asked for one."""

    def forget(self) -> None:
        """Begin anew with the next request. The old id is named there, so that the leader forgets it too."""
        self.epoch = EPOCH_FIRST
        self.sent.clear()

    def full(self, wanted: Mapping[Key, Asked]) -> SessionRequest[Key]:
        self.sent = dict(wanted)
        session_id, self.id = self.id, NO_SESSION
        return SessionRequest(session_id, EPOCH_FIRST, list(wanted.items()), [])

    def incremental(self, changed: Iterable[tuple[Key, Asked]], dropped: Iterable[Key]) -> SessionRequest[Key]:
        """The next request of the session; `changed` may hold what has not changed after all."""
        rows = [(key, asked) for key, asked in changed if self.sent.get(key) != asked]
        self.sent.update(rows)
        forgotten = [key for key in dropped if self.sent.pop(key, None) is not None]
        request = SessionRequest(self.id, self.epoch, rows, forgotten)
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        return request

    def ask_again(self, key: Key) -> None:
        """Name a partition in the next request even if nothing about it has changed: whoever asks is another one."""
        self.sent.pop(key, None)

    @property
    def is_open(self) -> bool:
        """Whether the next request may be incremental."""
        return self.epoch != EPOCH_FIRST

    def answered(self, request: SessionRequest[Key], session_id: int) -> None:
        """The leader has taken a request without an error."""
        if request.is_full:
            self.refused = session_id == NO_SESSION
            self.id = session_id
            self.epoch = EPOCH_FIRST if self.refused else 1
        elif session_id == NO_SESSION:
            # The leader has let go of a session that had nothing left.
            self.id = NO_SESSION
            self.forget()
