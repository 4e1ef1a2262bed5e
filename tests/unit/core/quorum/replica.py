"""One replica held in the hand: a test tells it everything that happens, and sees everything that it wants."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from ottla.core.quorum.core import QuorumCore
from ottla.core.quorum.effects import (
    Append,
    AppendVoters,
    BeginEpoch,
    Effect,
    ElectionState,
    FetchRequest,
    QuorumSettings,
    Send,
    StoreState,
    Truncate,
    VoteAnswer,
    VoteRequest,
)
from ottla.core.quorum.voters import ReplicaKey, Voter, VoterHistory, VoterSet
from ottla.model.errors import ErrorCode
from tests.unit.core.quorum.cluster import Entry, MemoryLog, endpoints

E = TypeVar("E")

TIMEOUT_MS = 1000


def key(node_id: int, disk: int = 0) -> ReplicaKey:
    """A node and one of its disks."""
    return ReplicaKey(node_id, UUID(int=node_id * 100 + disk + 1))


def voters(*node_ids: int) -> VoterSet:
    """Voters on their first disks."""
    return VoterSet.of([Voter(node_id, key(node_id).directory_id, endpoints(node_id)) for node_id in node_ids])


class Replica:
    """A core with a log in memory. Its disk is instantaneous unless a test holds it back; nothing else happens."""

    def __init__(
        self,
        own: ReplicaKey,
        members: VoterSet,
        *,
        epochs: tuple[int, ...] = (),
        state: ElectionState | None = None,
        is_recorded: bool = True,
    ) -> None:
        """`epochs` are those of the entries in its log."""
        self.now_ms = 0
        self.log = MemoryLog([Entry(epoch, number) for number, epoch in enumerate(epochs)])
        self.log.synced = self.log.end_offset
        settings = QuorumSettings(key=own, endpoints=endpoints(own.id), election_timeout_ms=TIMEOUT_MS)
        history = VoterHistory(members, is_recorded=is_recorded)
        stored = state or ElectionState(self.log.last_epoch)
        self.core = QuorumCore(settings, self.log, history, stored, lambda n: 0, self.now_ms)
        self.stored = stored
        self.wanted: list[Effect] = []

    def again(self) -> Replica:
        """The same replica after a crash: what it stored and synced is there."""
        epochs = tuple(entry.epoch for entry in self.log.entries[: self.log.synced])
        return Replica(self.core.key, self.core.voters, epochs=epochs, state=self.stored)

    def pump(self) -> list[Effect]:
        """Carry out what concerns the disk; the effects, for whoever wants to see them."""
        seen: list[Effect] = []
        while effects := self.core.drain():
            seen += effects
            for effect in effects:
                self._carry_out(effect)
        self.wanted += seen
        return seen

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, StoreState):
            self.stored = effect.state
            self.core.state_stored(effect.version, self.now_ms)
        elif isinstance(effect, BeginEpoch):
            self.append(effect.epoch)
        elif isinstance(effect, AppendVoters):
            self.append(effect.epoch)
            self.core.voters_appended(self.log.end_offset - 1, effect.voters, self.now_ms)
            self.core.synced(self.now_ms)
        elif isinstance(effect, Append) and effect.records:
            self.log.entries += effect.records
            self.log.synced = self.log.end_offset
            self.core.synced(self.now_ms)
        elif isinstance(effect, Truncate):
            del self.log.entries[effect.offset :]
            self.log.synced = min(self.log.synced, effect.offset)
            self.core.truncated(self.now_ms)

    def append(self, epoch: int, *, sync: bool = True) -> None:
        self.log.entries.append(Entry(epoch, "entry"))
        if sync:
            self.log.synced = self.log.end_offset
            self.core.synced(self.now_ms)

    def wait(self, ms: int) -> list[Effect]:
        self.now_ms += ms
        self.core.tick(self.now_ms)
        return self.pump()

    def sent(self, kind: type[E]) -> list[tuple[int, E]]:
        """The requests of a kind that are wanted since the last call, with their numbers."""
        found: list[tuple[int, E]] = [
            (effect.number, effect.request)
            for effect in self.wanted
            if isinstance(effect, Send) and isinstance(effect.request, kind)
        ]
        self.wanted.clear()
        return found

    # -- elections

    def asked(self, candidate: ReplicaKey, epoch: int, *, voter: ReplicaKey | None = None, pre_vote: bool = False,
              last: tuple[int, int] = (100, 100)) -> VoteAnswer:  # fmt: skip
        """`last` is the epoch and the end of the candidate's log: by default it has more than anybody."""
        request = VoteRequest(epoch, candidate, voter or self.core.key, last[1], last[0], pre_vote)
        answer = self.core.vote_requested(request, self.now_ms)
        self.pump()
        return answer

    def lead(self, *granting: int) -> Replica:
        """Be elected by others."""
        self.wait(10 * TIMEOUT_MS)
        for _ in ("pre-vote", "vote"):
            for number, request in self.sent(VoteRequest):
                granted = request.voter.id in granting
                self.core.answered(number, VoteAnswer(ErrorCode.NONE, self.core.epoch, -1, granted), self.now_ms)
            self.pump()
        return self

    # -- leading

    def fetched(self, replica: ReplicaKey, offset: int, epoch: int) -> int:
        """A replica has everything below `offset`, the last of it of `epoch`; the high watermark then."""
        request = FetchRequest(self.core.epoch, replica, offset, epoch, 0)
        self.core.fetch_requested(request, self.now_ms)
        self.pump()
        return self.core.high_watermark


def on_other_disk(member: Voter, disk: int = 1) -> Voter:
    return replace(member, directory_id=key(member.id, disk).directory_id)
