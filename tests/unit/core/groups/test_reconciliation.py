"""One member's way to the target: give back first, then take what is free."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.core.groups.consumer_member import (
    STABLE,
    UNRELEASED_PARTITIONS,
    UNREVOKED_PARTITIONS,
    ConsumerMember,
)
from ottla.core.groups.partition_map import PartitionMap
from ottla.core.groups.reconciliation import lost_something, reconcile
from ottla.model.errors import ApiError, ErrorCode

T, U = UUID(int=1), UUID(int=2)


def parts(*numbers: int, topic: UUID = T) -> PartitionMap:
    return {topic: frozenset(numbers)} if numbers else {}


def member(state: int = STABLE, epoch: int = 1, has: PartitionMap | None = None, **fields: object) -> ConsumerMember:
    return ConsumerMember(member_id="m", member_epoch=epoch, state=state, assigned=has or {}, **fields)  # type: ignore[arg-type]


def free(*taken: int) -> object:
    return lambda _topic, number: number not in taken


def test_a_member_in_the_epoch_of_the_target_stays() -> None:
    known = member(epoch=2, has=parts(0))
    assert reconcile(known, 2, parts(0, 1), None, free()) is known  # type: ignore[arg-type]


def test_free_partitions_are_taken_at_once() -> None:
    after = reconcile(member(has=parts(0)), 2, parts(0, 1), None, free())  # type: ignore[arg-type]
    assert (after.member_epoch, after.previous_member_epoch, after.state, after.assigned) == (2, 1, STABLE, parts(0, 1))


def test_surplus_is_given_back_first_and_in_the_old_epoch() -> None:
    after = reconcile(member(has=parts(0, 1)), 2, parts(1, 2), None, free())  # type: ignore[arg-type]
    assert (after.member_epoch, after.state) == (1, UNREVOKED_PARTITIONS)
    assert (after.assigned, after.pending_revocation) == (parts(1), parts(0))


@pytest.mark.parametrize("owned", [None, parts(0, 1), parts(0)])
def test_it_stays_until_the_member_says_that_it_gave_them_back(owned: PartitionMap | None) -> None:
    waiting = member(UNREVOKED_PARTITIONS, has=parts(1), pending_revocation=parts(0))
    assert reconcile(waiting, 2, parts(1, 2), owned, free()) is waiting  # type: ignore[arg-type]


def test_given_back_it_enters_the_newest_epoch() -> None:
    waiting = member(UNREVOKED_PARTITIONS, has=parts(1), pending_revocation=parts(0))
    after = reconcile(waiting, 5, parts(1, 2), parts(1), free())  # type: ignore[arg-type]
    assert (after.member_epoch, after.state, after.assigned) == (5, STABLE, parts(1, 2))
    assert after.pending_revocation == {}


def test_what_the_member_has_not_even_got_needs_no_round() -> None:
    after = reconcile(member(has=parts(0, 1)), 2, parts(1), parts(1), free())  # type: ignore[arg-type]
    assert (after.member_epoch, after.state, after.assigned) == (2, STABLE, parts(1))


def test_partitions_of_others_are_waited_for_in_the_new_epoch() -> None:
    after = reconcile(member(), 2, parts(0, 1, 2), None, free(1, 2))  # type: ignore[arg-type]
    assert (after.member_epoch, after.state, after.assigned) == (2, UNRELEASED_PARTITIONS, parts(0))
    later = reconcile(after, 2, parts(0, 1, 2), None, free(2))  # type: ignore[arg-type]
    assert (later.state, later.assigned) == (UNRELEASED_PARTITIONS, parts(0, 1))
    assert reconcile(later, 2, parts(0, 1, 2), None, free(2)) == later  # type: ignore[arg-type]
    last = reconcile(later, 2, parts(0, 1, 2), None, free())  # type: ignore[arg-type]
    assert (last.state, last.assigned, last.previous_member_epoch) == (STABLE, parts(0, 1, 2), 1)


def test_topics_that_are_not_subscribed_to_any_more_go_before_there_is_a_target() -> None:
    known = member(epoch=3, has={**parts(0), **parts(0, topic=U)})
    after = reconcile(known, 3, known.assigned, None, free(), frozenset({T}))  # type: ignore[arg-type]
    assert (after.member_epoch, after.state) == (3, UNREVOKED_PARTITIONS)
    assert (after.assigned, after.pending_revocation) == (parts(0), parts(0, topic=U))


def test_a_state_of_a_later_version_means_to_begin_anew() -> None:
    strange = member(state=77, has=parts(0))
    for owned in (None, parts(0)):
        with pytest.raises(ApiError) as refusal:
            reconcile(strange, 2, parts(0), owned, free())  # type: ignore[arg-type]
        assert refusal.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert reconcile(strange, 2, parts(0), {}, free()).state == STABLE  # type: ignore[arg-type]


def test_losing_is_told_from_gaining() -> None:
    one = member(has=parts(0, 1))
    assert not lost_something(one, member(has=parts(0, 1, 2)))
    assert not lost_something(one, member(has=parts(0), pending_revocation=parts(1)))
    assert lost_something(one, member(has=parts(0)))
