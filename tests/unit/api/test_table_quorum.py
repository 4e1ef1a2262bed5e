"""Every API of the quorum hands its request to the quorum, and says an error in its own answer, in each version."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.api import fetch_metadata
from ottla.api.context import RequestContext
from ottla.api.entry import Api
from ottla.api.table_quorum import QUORUM_APIS
from ottla.model.chunks import Chunks
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC_ID
from ottla.wire import fetch_client, fetch_types
from ottla.wire.fields import NodeEndpoint
from ottla.wire.schema import Message, encode

METHODS = {
    "VoteRequest": "vote",
    "BeginQuorumEpochRequest": "begin_quorum_epoch",
    "EndQuorumEpochRequest": "end_quorum_epoch",
    "FetchSnapshotRequest": "fetch_snapshot",
    "AddRaftVoterRequest": "add_voter",
    "RemoveRaftVoterRequest": "remove_voter",
    "UpdateRaftVoterRequest": "update_voter",
}
CHANGES_VOTERS = ("add_voter", "remove_voter", "update_voter")


class Quorum:
    """Notes what is asked of it, and answers with what it was told to."""

    leader_id, epoch = 2, 7

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    def address_of_leader(self) -> tuple[str, int]:
        return "leader", 9092

    def __getattr__(self, name: str) -> Any:
        async def method(request: object) -> object:
            self.asked.append((name, request))
            return "the answer"

        return method


def name_of(api: Api) -> str:
    assert api.request is not None
    return METHODS[api.request.__name__]


@pytest.mark.parametrize("api", QUORUM_APIS, ids=name_of)
def test_the_quorum_answers(api: Api) -> None:
    quorum, request = Quorum(), object()
    ctx = SimpleNamespace(services=SimpleNamespace(quorum=quorum), api_version=api.max_version)
    answer = asyncio.run(cast(Any, api.handler)(ctx, request))
    assert quorum.asked == [(name_of(api), request)]
    if name_of(api) not in CHANGES_VOTERS:
        assert answer == "the answer"
    else:
        assert answer.error_code == ErrorCode.NONE
    if name_of(api) == "update_voter":
        leader = answer.current_leader
        assert (leader.leader_id, leader.leader_epoch, leader.host, leader.port) == (2, 7, "leader", 9092)


@pytest.mark.parametrize("api", QUORUM_APIS, ids=name_of)
def test_an_error_can_be_said_in_every_version(api: Api) -> None:
    assert api.error_response is not None
    for version in range(api.min_version, api.max_version + 1):
        answer: Any = api.error_response(cast(Message, None), ErrorCode.NOT_LEADER_OR_FOLLOWER, "why", version)
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert encode(answer, version)


def test_only_changes_by_operators_are_handed_on() -> None:
    assert [name_of(api) for api in QUORUM_APIS if api.forwarded] == ["add_voter", "remove_voter"]


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.INCONSISTENT_CLUSTER_ID])
def test_a_fetch_of_the_metadata_log_is_encoded(error: ErrorCode) -> None:
    class Fetches:
        async def fetch(self, request: object) -> object:
            return error, fetch_types.PartitionData(0, high_watermark=5), [NodeEndpoint(2, "leader", 9092)]

    ctx = SimpleNamespace(services=SimpleNamespace(quorum=Fetches()), api_version=17, correlation_id=1)
    request = SimpleNamespace(topics=[(METADATA_TOPIC_ID, [])])

    async def main() -> Chunks:
        return await fetch_metadata.handle(cast(RequestContext, ctx), cast(fetch_types.FetchRequest, request))

    body = b"".join(cast(Any, asyncio.run(main())))
    answer = fetch_client.parse_response(memoryview(body), 5, 17)
    assert answer.error_code == error
    assert len(answer.topics) == (1 if error is ErrorCode.NONE else 0)
