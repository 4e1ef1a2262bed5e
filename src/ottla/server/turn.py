"""What waits for the end of a turn of the loop: when all that was readable has been read.

Theory of operation. To send something to a client that sleeps also wakes it, which costs more than the rest of the
system call, and a process with many connections may be woken by each of them. So while turns bring requests of several
connections, short answers are kept until the turn ends, and then leave one right after the other: who is awake is not
woken again. Produce requests wait for the same moment, to be written together (`api.produce_turn`). Where a turn brings
one answer there is nothing to gather, and it leaves at once.

What an editor must keep true: whoever puts something here touches the loop's `Attention`, which calls `end`.
"""

from __future__ import annotations

from typing import Protocol

from ottla.api.produce_turn import ProduceTurn


class Leaving(Protocol):
    """A connection with an answer that leaves when the turn ends."""

    def leave(self) -> None:
        """Send it, if that was not done meanwhile."""


class Turn:
    """One per loop."""

    __slots__ = ("answers", "has_many", "leaving", "produce")

    def __init__(self, produce: ProduceTurn) -> None:
        self.produce = produce
        self.leaving: list[Leaving] = []
        self.answers = 0
        """Short ones that this turn has brought, Produce left out."""
        self.has_many = False
        """Whether the last turn brought more than one."""

    def end(self) -> None:
        """All that was readable has been read."""
        try:
            if self.produce.requests:
                self.produce.end()
        finally:
            self.has_many = self.answers > 1
            self.answers = 0
            if self.leaving:
                leaving, self.leaving = self.leaving, []
                for connection in leaving:
                    connection.leave()
