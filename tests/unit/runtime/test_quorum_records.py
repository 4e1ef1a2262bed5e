"""Voters and records go through the log's batches and come back."""

from __future__ import annotations

from uuid import UUID

import pytest

from ottla.core.controller.records import FeatureLevelRecord
from ottla.core.quorum.voters import Voter, VoterEndpoint, VoterSet
from ottla.model.errors import CorruptLogError
from ottla.runtime.metadata_codec import LEADER_CHANGE, build_batch, build_control_records, leader_change
from ottla.runtime.quorum_records import read_batches, voter_records

VOTERS = VoterSet.of(
    [Voter(number, UUID(int=number), (VoterEndpoint("PLAINTEXT", f"host-{number}", 9092),)) for number in (1, 2, 3)]
)


def test_voters_are_read_back_with_their_offset() -> None:
    messages = [(LEADER_CHANGE, leader_change(1, [1, 2, 3], [1, 2])), *voter_records(VOTERS, with_version=True)]
    control = build_control_records(messages, base_offset=7, leader_epoch=4, now_ms=0)
    records = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
    plain = build_batch(records, base_offset=10, leader_epoch=4, now_ms=0)
    first, second = read_batches(memoryview(bytes(control) + bytes(plain)))
    assert (first.base_offset, first.last_offset, first.epoch, first.position) == (7, 9, 4, 0)
    assert first.voters == (9, VOTERS)
    assert not first.records
    assert (second.base_offset, second.position, second.size) == (10, len(control), len(plain))
    assert list(second.records) == records
    assert second.voters is None


def test_a_batch_that_came_in_part_is_left_for_later() -> None:
    batch = build_control_records(voter_records(VOTERS, with_version=False), base_offset=0, leader_epoch=1, now_ms=0)
    assert read_batches(memoryview(bytes(batch))[:-1]) == []


def test_a_batch_that_makes_no_sense_is_corruption() -> None:
    batch = build_batch([FeatureLevelRecord(name="x", feature_level=1)], base_offset=0, leader_epoch=1, now_ms=0)
    batch[-12:] = b"\xff" * 12
    with pytest.raises(CorruptLogError):
        read_batches(memoryview(bytes(batch)))
