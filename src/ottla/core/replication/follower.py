"""One partition as its follower sees it: what to ask the leader next, and what an answer means.

Theory of operation. A follower asks for what comes after the end of its log and says which leader epoch its last record
is from. The leader either sends what follows, or says where the two logs part: the largest epoch that it knows at or
below the follower's, and where that epoch ends in its own log. The follower cuts its log to what both can have in
common and asks again, until the leader has nothing to object. So each step is one fetch, and no state but the log is
needed to know what to ask.

Everything else is a reason to wait: a leader that has not heard of its election, a follower that has not, a disk that
fails. Waits begin short, because most of them end when the next metadata record arrives, and grow.

What an editor must keep true:
- A log is cut only by what the leader said about its epochs, never to the high watermark: what lies above that may be
  acknowledged, and the follower only has not heard of it.
- The cut is never below what both logs share, and each one drops at least one record, or the follower waits. So
  reconciliation ends, and with clean elections nothing committed is cut.
- An answer counts only for the leader epoch, and for the end of the log, for which it was asked.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Final, NamedTuple

from ottla.model.errors import ErrorCode

BACKOFF_MS_FIRST: Final = 10
"""Soon: as a rule the other side needs no more than the metadata record that this one has seen already."""
NO_EPOCH: Final = -1

_NOT_HEARD_YET: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""Errors that mean that one of the two does not know the present leader yet."""


class OwnLog(NamedTuple):
    """What a follower's log says of itself."""

    start_offset: int
    end_offset: int
    last_epoch: int
    """The leader epoch of the last record; -1 if there is none."""


class Step(Enum):
    """What to do with an answer."""

    TAKE = auto()
    """Append what is there, learn the high watermark and the start."""
    TRUNCATE = auto()
    """Cut the log at an offset, then ask again."""
    FIND_START = auto()
    """Ask the leader where its log begins: what follows this log is not there any more."""
    RESTART = auto()
    """Forget the log and go on at an offset."""
    WAIT = auto()
    """Ask again after a while."""


class Decision(NamedTuple):
    """A step, with the offset it needs, or the reason to wait."""

    step: Step
    offset: int = -1
    reason: str = ""


TAKE: Final = Decision(Step.TAKE)


class FollowerState:
    """What is remembered of one followed partition besides its log."""

    __slots__ = ("failures", "leader_epoch", "retry_at_ms")

    def __init__(self, leader_epoch: int) -> None:
        self.leader_epoch = leader_epoch
        self.failures = 0
        """Waits in a row."""
        self.retry_at_ms = 0

    def is_due(self, now_ms: int) -> bool:
        return now_ms >= self.retry_at_ms

    def succeeded(self) -> None:
        self.failures = 0

    def wait(self, now_ms: int, backoff_ms_max: int) -> int:
        """Note a failure; returns for how long to leave the partition alone."""
        delay_ms = backoff_ms(self.failures, backoff_ms_max)
        self.failures += 1
        self.retry_at_ms = now_ms + delay_ms
        return delay_ms


def backoff_ms(failures: int, backoff_ms_max: int) -> int:
    """How long to wait after so many failures in a row."""
    return max(min(BACKOFF_MS_FIRST << min(failures, 20), backoff_ms_max), 1)


def understand_error(error_code: int) -> Decision:
    """What an error of the leader means for a partition."""
    if error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Decision(Step.FIND_START)
    try:
        name = ErrorCode(error_code).name
    except ValueError:
        name = f"error {error_code}"
    return Decision(Step.WAIT, reason=name)


def is_expected(error_code: int) -> bool:
    """Whether an error comes and goes with every election, and is nothing to report."""
    return error_code in _NOT_HEARD_YET


def understand_divergence(
    epoch: int, end_offset: int, own: OwnLog, end_offset_for: Callable[[int], tuple[int, int]]
) -> Decision:
    """Where to cut, when the leader says that in its log the largest epoch up to ours is `epoch` and where that ends.

    `end_offset_for` says the same of the own log: the largest epoch that is not beyond the given one, and its end.
    """
    if epoch < 0 or end_offset < 0:
        return Decision(Step.WAIT, reason=f"the leader does not know where leader epoch {own.last_epoch} ends")
    _, own_epoch_end = end_offset_for(epoch)
    if own_epoch_end < 0:
        own_epoch_end = own.end_offset
    # Both logs share nothing beyond the end of any epoch, in either of them.
    offset = min(own_epoch_end, end_offset, own.end_offset)
    if offset >= own.end_offset:
        return Decision(Step.WAIT, reason=f"the leader objects to epoch {own.last_epoch}, and nothing can be cut")
    return Decision(Step.TRUNCATE, offset)


def understand_start(leader_start_offset: int, own: OwnLog) -> Decision:
    """What to do when the leader has nothing at the end of our log, and its log begins at `leader_start_offset`."""
    if leader_start_offset < 0:
        return Decision(Step.WAIT, reason="the leader does not say where its log begins")
    if leader_start_offset > own.end_offset or (own.last_epoch < 0 and leader_start_offset != own.end_offset):
        # All that is here was deleted there. An empty log may end beyond the leader's, too: nothing is lost with it.
        return Decision(Step.RESTART, leader_start_offset)
    return Decision(Step.WAIT, reason=f"offset {own.end_offset} is out of the leader's range")
