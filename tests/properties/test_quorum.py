"""Whatever happens to a quorum: one leader an epoch, nothing committed is lost, and it works again afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from ottla.core.quorum import elections, leading
from ottla.core.quorum.core import QuorumCore
from ottla.core.quorum.effects import StoreState, VoteRequest
from ottla.core.quorum.progress import Progress, ReplicaProgress
from ottla.core.quorum.roles import Leader
from ottla.core.quorum.voters import Voter, VoterSet
from ottla.model.errors import OttlaError
from tests.properties.quorum_story import Story
from tests.unit.core.quorum.cluster import Node
from tests.unit.core.quorum.invariants import BrokenInvariantError

SEEDS = int(os.environ.get("QUORUM_SEEDS", "25"))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_quorum_survives_anything(seed: int) -> None:
    Story(seed).run()


def test_a_seed_is_replayed_exactly() -> None:
    def outcome() -> tuple[Any, ...]:
        story = Story(5, acts=60)
        story.run()
        return story.cluster.now_ms, story.cluster.sequence, story.cluster.invariants.committed

    assert outcome() == outcome()


# Each rule, broken on purpose: some invariant must notice within a few seeds.


def forget_votes(patch: pytest.MonkeyPatch) -> None:
    def store(node: Node, core: QuorumCore, effect: StoreState) -> None:
        node.stored = max(node.stored, effect.version)
        core.state_stored(effect.version, node.cluster.now_ms)
        ready, node.held = node.held, []
        for _, action in ready:
            action()

    patch.setattr(Node, "store", store)


def vote_for_a_shorter_log(patch: pytest.MonkeyPatch) -> None:
    whole = elections.Elections._would_grant

    def would_grant(core: QuorumCore, request: VoteRequest) -> bool:
        return whole(core, request._replace(last_epoch=10**9))

    patch.setattr(elections.Elections, "_would_grant", would_grant)


def minority_decides(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoterSet, "needed", property(lambda voters: max(len(voters.voters) // 2, 1)))


def count_what_is_not_synced(patch: pytest.MonkeyPatch) -> None:
    def sync_later(node: Node, disk_ms: int) -> None:
        life, end = node.life, node.log.end_offset
        hidden = node.log

        class Optimistic:
            synced_offset = property(lambda self: hidden.end_offset)

            def __getattr__(self, name: str) -> Any:
                return getattr(hidden, name)

        assert node.core is not None
        node.core._log = Optimistic()

        def sync(core: QuorumCore) -> None:
            if node.life == life and hidden.end_offset >= end:
                hidden.synced = max(hidden.synced, end)
            core.synced(node.cluster.now_ms)

        node.at(disk_ms + 40, sync)
        node.at(0, lambda core: core.synced(node.cluster.now_ms))

    patch.setattr(Node, "sync_later", sync_later)


def no_divergence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(leading.Leading, "_difference", lambda core, request: None)


def high_watermark_goes_back(patch: pytest.MonkeyPatch) -> None:
    def follow(core: QuorumCore) -> None:
        core.high_watermark = min(core._leader_high_watermark, core._log.synced_offset)

    patch.setattr(leading.Leading, "_follow_high_watermark", follow)


def epoch_goes_back(patch: pytest.MonkeyPatch) -> None:
    whole = elections.Elections._become_prospective

    def become_prospective(core: QuorumCore, now_ms: int, retries: int = 0) -> None:
        core.state = type(core.state)(max(core.epoch - 1, 0), None, -1)
        whole(core, now_ms, retries)

    patch.setattr(elections.Elections, "_become_prospective", become_prospective)


def vote_twice(patch: pytest.MonkeyPatch) -> None:
    whole = elections.Elections._would_grant

    def would_grant(core: QuorumCore, request: VoteRequest) -> bool:
        state, core.state = core.state, core.state._replace(voted=None)
        granted = whole(core, request)
        core.state = state
        return granted

    patch.setattr(elections.Elections, "_would_grant", would_grant)


def commit_by_count_alone(patch: pytest.MonkeyPatch) -> None:
    whole = leading.Leading._advance

    def advance(core: QuorumCore, now_ms: int) -> None:
        if isinstance(core.role, Leader):
            core.role.epoch_start_offset = -1
        whole(core, now_ms)

    patch.setattr(leading.Leading, "_advance", advance)


def wiped_voter_votes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections.Elections, "_is_meant", lambda core, voter: voter.id in (core.key.id, -1))


def wiped_voter_counts(patch: pytest.MonkeyPatch) -> None:
    def of(progress: Progress, voter: Voter) -> ReplicaProgress | None:
        return next((found for found in reversed(progress._replicas.values()) if found.key.id == voter.id), None)

    patch.setattr(Progress, "of", of)


BROKEN: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (forget_votes, ""),
    (vote_for_a_shorter_log, "a leader has all that is committed"),
    (minority_decides, ""),
    (count_what_is_not_synced, "committed means on a majority"),
    (no_divergence, ""),
    (high_watermark_goes_back, "the high watermark rises"),
    (epoch_goes_back, "epochs rise"),
    (vote_twice, "one vote an epoch"),
    (commit_by_count_alone, "a leader commits through its own epoch"),
    (wiped_voter_votes, "another disk is another voter"),
    (wiped_voter_counts, "committed means on a majority"),
]


@pytest.mark.parametrize(("break_it", "invariant"), BROKEN, ids=lambda value: getattr(value, "__name__", ""))
def test_a_broken_rule_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    noticed: list[str] = []
    for seed in range(20):
        try:
            Story(seed, acts=80).run()
        except BrokenInvariantError as error:
            noticed.append(str(error))
            if str(error).startswith(invariant):
                return
        except (AssertionError, IndexError, ValueError, OttlaError):
            continue
    pytest.fail(f"not noticed; found {noticed[:5]}")
