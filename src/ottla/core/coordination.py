"""What every coordinator has in common: a shard decides, and only replaying its records changes what is recorded.

Theory of operation. A coordinator is one state machine (`Shard`) per partition of an internal topic. Whoever drives it
hands in a command with a ticket; the shard gives an `Outcome`: records to append, all of them or none, and answers for
tickets, this command's or those of earlier ones that waited. The driver appends the records, replays each of them into
the shard at once, and lets the answers go when everything appended so far is committed. So a second command may be
decided before the first one is committed, and nobody is told of anything that a crash could take back.

What an editor of a shard must keep true:
- What is in records changes in `replay` only, whoever calls it: the log at a start, the driver after an append. A shard
  that replays its whole log is in the state in which it would have been without the restart.
- What is in no record (who waits for a rebalance, when a member was heard of) may change in `decide` and `tick`. It
  must be right to lose it.
- `decide` either raises ApiError and has changed nothing, or gives an outcome.
- A ticket is answered once. When a shard is unloaded the driver answers those that are still open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ottla.model.configs.resolve import BrokerConfig
from ottla.model.errors import ErrorCode

AnswerT = TypeVar("AnswerT")
RecordT = TypeVar("RecordT")

Ticket = int
"""Names one request that waits for its answer."""

Checks: TypeAlias = Mapping[type["Command[Any]"], Callable[[Any, BrokerConfig], None]]
"""What can be refused (ApiError) of a kind of command by whoever is asked, knowing nothing but the configs."""


class Command(Generic[AnswerT]):
    """Something asked of a coordinator, answered with an AnswerT."""

    __slots__ = ()


class Outcome(Generic[RecordT]):
    """What a shard makes of a command or of the time: records to write, and answers that rest on them."""

    __slots__ = ("answers", "not_written", "producer_epoch", "producer_id", "records")

    def __init__(
        self,
        records: list[RecordT] | None = None,
        answers: list[tuple[Ticket, Any]] | None = None,
        *,
        producer_id: int = -1,
        producer_epoch: int = -1,
        not_written: Callable[[ErrorCode, int], Outcome[RecordT]] | None = None,
    ) -> None:
        self.records: list[RecordT] = [] if records is None else records
        self.answers: list[tuple[Ticket, Any]] = [] if answers is None else answers
        """Tickets with their answers. An ApiError as the answer means that the request as a whole failed."""
        self.producer_id = producer_id
        """Zero or more: the records belong to this producer's transaction."""
        self.producer_epoch = producer_epoch
        self.not_written = not_written
        """Asked (why, the time) when the records could not be appended; what it gives replaces this outcome. Without it
        every answer of the outcome becomes that error."""

    def answer(self, ticket: Ticket, answer: Any) -> None:
        self.answers.append((ticket, answer))

    def add(self, other: Outcome[RecordT]) -> None:
        """Take over another outcome's records and answers, after one's own."""
        self.records += other.records
        self.answers += other.answers


class Shard(Protocol[RecordT]):
    """One coordinator: the state of one partition of an internal topic."""

    def decide(self, command: Command[Any], ticket: Ticket, now_ms: int) -> Outcome[RecordT]:
        """What to write and whom to answer. ApiError: refused as a whole, and nothing has changed."""

    def tick(self, now_ms: int) -> Outcome[RecordT]:
        """What is due by now: sessions that ended, rebalances that waited long enough, expiry."""

    def next_deadline_ms(self) -> int | None:
        """When `tick` should be called next, at the latest."""

    def replay(self, record: RecordT, producer_id: int) -> None:
        """A record is in the log: this is the only place where recorded state changes. `producer_id` is that of the
        transaction which it belongs to, -1 outside of one."""

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction that wrote here has ended."""

    def loaded(self, now_ms: int) -> Outcome[RecordT]:
        """Everything in the log has been replayed; from now on there are commands and ticks."""
