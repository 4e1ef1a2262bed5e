"""UpdateRaftVoter: a voter tells the leader where it listens now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.messages.quorum_nodes import LeaderEndpoint
from ottla.wire.schema import Int16, Int32, Message, String, Uuid, tag


class SupportedKRaftVersions(Message):
    """The rules of the quorum that a voter can work with. Kafka calls it KRaftVersionFeature."""

    min_supported_version: Int16
    max_supported_version: Int16


class UpdateRaftVoterRequest(Message, api_key=82, versions=(0, 0), flexible_since=0):
    """The voter as it is now."""

    cluster_id: String | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Sequence[LeaderEndpoint]
    kraft_version_feature: SupportedKRaftVersions


class VoterLeader(Message, frozen=True):  # type: ignore[misc]
    """Who leads, and where. Kafka calls it CurrentLeader."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: String = ""
    port: Int32 = 0


class UpdateRaftVoterResponse(Message, api_key=82, versions=(0, 0), flexible_since=0):
    """What became of it."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: Annotated[VoterLeader, tag(0)] = VoterLeader()
