"""UpdateRaftVoter 0: a voter says where it listens now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.model.errors import ErrorCode
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse, VoterLeader

if TYPE_CHECKING:
    from ottla.api.context import RequestContext


async def handle(ctx: RequestContext, request: UpdateRaftVoterRequest) -> UpdateRaftVoterResponse:
    quorum = ctx.services.quorum
    await quorum.update_voter(request)
    host, port = quorum.address_of_leader() or ("", 0)
    leader = VoterLeader(leader_id=quorum.leader_id, leader_epoch=quorum.epoch, host=host, port=port)
    return UpdateRaftVoterResponse(current_leader=leader)


def failed(_request: UpdateRaftVoterRequest, code: ErrorCode, _message: str, _version: int) -> UpdateRaftVoterResponse:
    return UpdateRaftVoterResponse(error_code=code)
