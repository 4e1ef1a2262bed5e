"""AddRaftVoter: a node that follows the metadata log becomes a voter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.messages.quorum_nodes import LeaderEndpoint
from ottla.wire.schema import Bool, Int16, Int32, Message, String, Uuid, ignorable, since


class AddRaftVoterRequest(Message, api_key=80, versions=(0, 1), flexible_since=0):
    """The voter, by node and directory, and where it listens."""

    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: Sequence[LeaderEndpoint]
    ack_when_committed: Annotated[Bool, since(1)] = True


class AddRaftVoterResponse(Message, api_key=80, versions=(0, 1), flexible_since=0):
    """What became of it."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, ignorable] = None
