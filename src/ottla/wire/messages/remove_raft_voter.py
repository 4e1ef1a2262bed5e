"""RemoveRaftVoter: a voter of the metadata log does not vote any more."""

from __future__ import annotations

from typing import Annotated

from ottla.wire.schema import Int16, Int32, Message, String, Uuid, ignorable


class RemoveRaftVoterRequest(Message, api_key=81, versions=(0, 0), flexible_since=0):
    """The voter, by node and directory."""

    cluster_id: String | None
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Message, api_key=81, versions=(0, 0), flexible_since=0):
    """What became of it."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[String | None, ignorable] = None
