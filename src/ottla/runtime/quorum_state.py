"""The quorum-state file: the epoch of this replica and its vote. Kafka's format, version 0, and the voted directory.

An epoch is on disk before anything is done in it, so that no two leaders, and no two lives of one leader, share one.
Kafka once kept the applied offset here and now writes 0; Ottla keeps the offset below which everything has been synced.
A damaged record below that offset is no torn write but corruption.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ottla.log.disk import Disk
from ottla.model.errors import CorruptLogError
from ottla.model.ids import ZERO_UUID, uuid_from_base64, uuid_to_base64

FILE_NAME: Final = "quorum-state"


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumState:
    """What a voter must not forget."""

    leader_id: int = -1
    leader_epoch: int = 0
    voted_id: int = -1
    voted_directory_id: UUID = ZERO_UUID
    voters: tuple[int, ...] = ()
    synced_offset: int = 0
    is_kafkas: bool = False
    """Whether Apache Kafka wrote it: it names the voted directory or the applied offset, and Ottla names both."""


def read_quorum_state(disk: Disk, path: str) -> QuorumState | None:
    """The stored state, None if there is none yet. A file that cannot be read is an error: an epoch may be lost."""
    if not disk.exists(path):
        return None
    try:
        stored = json.loads(disk.read(path))
        return QuorumState(
            leader_id=int(stored["leaderId"]),
            leader_epoch=int(stored["leaderEpoch"]),
            voted_id=int(stored["votedId"]),
            voted_directory_id=uuid_from_base64(stored["votedDirectoryId"])
            if "votedDirectoryId" in stored
            else ZERO_UUID,
            voters=tuple(int(voter["voterId"]) for voter in stored.get("currentVoters", ())),
            synced_offset=int(stored.get("appliedOffset", 0)),
            is_kafkas=not {"votedDirectoryId", "appliedOffset"} <= stored.keys(),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLogError(f"{path} cannot be read: {error}") from error


def write_quorum_state(disk: Disk, path: str, state: QuorumState) -> None:  # runs in a thread
    """Returns when the state is on disk. Blocks."""
    stored = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.leader_epoch,
        "votedId": state.voted_id,
        "votedDirectoryId": uuid_to_base64(state.voted_directory_id),
        "appliedOffset": state.synced_offset,
        "currentVoters": [{"voterId": voter} for voter in state.voters],
        "data_version": 0,
    }
    disk.write_atomically(path, json.dumps(stored, separators=(",", ":")).encode())
