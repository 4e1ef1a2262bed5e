"""What the clients did and saw. The checkers judge it; nothing here knows what is right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol


class Clock(Protocol):
    """Where a history has its times from."""

    @property
    def now_us(self) -> int: ...


class Outcome(Enum):
    """What became of an operation, as its client knows."""

    PENDING = auto()
    OK = auto()
    FAILED = auto()
    """Certainly not done."""
    UNKNOWN = auto()


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(slots=True, eq=False)
class Transaction:
    """A transaction of a client: what it wrote, and how it ended."""

    number: int
    transactional_id: str
    begun_us: int
    outcome: Outcome = Outcome.PENDING
    """OK is committed, FAILED is aborted."""
    sends: list[Send] = field(default_factory=list)
    reads: list[tuple[Place, int, int]] = field(default_factory=list)
    """What it consumed: partition, offset, value."""
    has_offset: bool = False
    """Whether an offset goes with it, which is its number."""


@dataclass(slots=True, eq=False)
class Send:
    """One value that was sent once, though perhaps tried often."""

    value: int
    place: Place
    producer: str
    order: int
    """The producer's count of sends to this partition."""
    sent_us: int
    outcome: Outcome = Outcome.PENDING
    offset: int = -1
    done_us: int = -1
    transaction: Transaction | None = None


class Poll(NamedTuple):
    """What one fetch gave a reader of a partition."""

    time_us: int
    reader: str
    generation: int
    """Rises when the reader begins anew: seeks, or loses and regains the partition."""
    place: Place
    committed_only: bool
    begin: int
    """The offset that was asked for."""
    next_offset: int
    records: list[tuple[int, int]]
    """Offset and value."""


NEVER_US: Final = 1 << 62


class OffsetUse(NamedTuple):
    """A group's offset that was committed, or read back."""

    begun_us: int
    done_us: int
    """NEVER_US of a commit of which nobody knows whether it was carried out, and when it will be."""
    group: str
    place: Place
    offset: int
    is_read: bool
    is_transactional: bool = False
    """It is the number of the transaction that it was committed with, and stands for nothing that was read."""

    @property
    def is_known(self) -> bool:
        return self.done_us < NEVER_US


def key_of(value: int) -> int:
    """The key that a value is sent with."""
    return value % 5


class History:
    """Everything, in the order in which it happened."""

    def __init__(self, timeline: Clock, *, is_compacted: Callable[[str], bool] = lambda topic: False) -> None:
        self.timeline = timeline
        self.is_compacted = is_compacted
        """Whether of each key only the last value of a topic is kept."""
        self.sends: list[Send] = []
        self.polls: list[Poll] = []
        self.transactions: list[Transaction] = []
        self.offsets: list[OffsetUse] = []
        self.final: dict[tuple[Place, bool], list[tuple[int, int]]] = {}
        """The full read at the end: partition and whether committed records only, to offsets and values."""
        self.final_start: dict[Place, int] = {}
        self.acknowledged = 0

    def send(self, place: Place, producer: str, order: int, transaction: Transaction | None = None) -> Send:
        """Note a new value before it leaves."""
        send = Send(len(self.sends), place, producer, order, self.timeline.now_us, transaction=transaction)
        self.sends.append(send)
        if transaction is not None:
            transaction.sends.append(send)
        return send

    def settle(self, send: Send, outcome: Outcome, offset: int = -1) -> None:
        send.outcome = outcome
        send.offset = offset
        send.done_us = self.timeline.now_us
        if outcome is Outcome.OK:
            self.acknowledged += 1

    def begin(self, transactional_id: str) -> Transaction:
        transaction = Transaction(len(self.transactions), transactional_id, self.timeline.now_us)
        self.transactions.append(transaction)
        return transaction

    def to_be_seen(self, place: Place, *, committed_only: bool) -> list[tuple[int, int]]:
        """What whoever reads a partition must be shown: of a compacted one the last value of each key.

        Others may be gone where one reads, and still be there where another does: each replica is compacted by itself.
        """
        rows = self.final.get((place, committed_only), [])
        if not self.is_compacted(place.topic):
            return rows
        newest = {key_of(value): offset for offset, value in rows}
        return [row for row in rows if newest[key_of(row[1])] == row[0]]

    def poll(self, poll: Poll) -> None:
        self.polls.append(poll)
