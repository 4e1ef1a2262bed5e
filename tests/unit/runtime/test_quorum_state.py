"""The epoch and the vote on disk."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from ottla.log.disk import RealDisk
from ottla.model.errors import CorruptLogError
from ottla.runtime.quorum_state import QuorumState, read_quorum_state, write_quorum_state


def test_what_was_written_is_read(tmp_path: Path) -> None:
    path, disk = str(tmp_path / "quorum-state"), RealDisk()
    assert read_quorum_state(disk, path) is None
    state = QuorumState(
        leader_id=1, leader_epoch=7, voted_id=2, voted_directory_id=UUID(int=9), voters=(1, 2, 3), synced_offset=55
    )
    write_quorum_state(disk, path, state)
    assert read_quorum_state(disk, path) == state


@pytest.mark.parametrize(
    "version",
    [
        {"clusterId": "", "appliedOffset": 0, "currentVoters": [], "data_version": 0},
        {"votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA", "data_version": 1},
    ],
)
def test_the_files_of_kafka_are_read_and_known(tmp_path: Path, version: dict[str, object]) -> None:
    path = tmp_path / "quorum-state"
    path.write_text(json.dumps({"leaderId": 1, "leaderEpoch": 3, "votedId": -1} | version))
    assert read_quorum_state(RealDisk(), str(path)) == QuorumState(leader_id=1, leader_epoch=3, is_kafkas=True)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"leaderId": "x"}'])
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "quorum-state"
    path.write_text(content)
    with pytest.raises(CorruptLogError):
        read_quorum_state(RealDisk(), str(path))
