"""Who votes: by request, and by what a node does itself when its disk or its address is another one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from ottla.core.quorum.roles import Follower, Leader
from ottla.core.quorum.voters import ReplicaKey, VoterEndpoint
from ottla.log.partition_log import Appended
from ottla.model.errors import ApiError, ErrorCode
from ottla.runtime.quorum_log import QuorumLog
from ottla.runtime.quorum_membership import CLOCK_JITTER_MS
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest
from ottla.wire.messages.quorum_nodes import LeaderEndpoint
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.wire.messages.update_raft_voter import SupportedKRaftVersions, UpdateRaftVoterRequest
from tests.unit.runtime.quorum_cluster import CLUSTER_ID, Member, QuorumCluster, setting, three_nodes, voters

JOINING = {"controller.quorum.bootstrap.servers": "node-1:1", "cluster.id": CLUSTER_ID}
BY_HAND = {"controller.quorum.auto.join.enable": "false"}


def run(scenario: Callable[[QuorumCluster], Awaitable[None]], path: Path) -> None:
    async def main() -> None:
        async with three_nodes(path) as cluster:
            await scenario(cluster)

    asyncio.run(main())


def endpoints(member: Member, node_id: int) -> tuple[VoterEndpoint, ...]:
    """Where a node believes that a voter listens."""
    found = member.node.core.voters.find(node_id)
    assert found is not None
    return found.endpoints


def update(member: Member, epoch: int, *, host: str = "elsewhere", directory: UUID | None = None,
           cluster_id: str = CLUSTER_ID) -> UpdateRaftVoterRequest:  # fmt: skip
    return UpdateRaftVoterRequest(
        cluster_id=cluster_id,
        current_leader_epoch=epoch,
        voter_id=member.id,
        voter_directory_id=directory or member.directory_id,
        listeners=[LeaderEndpoint(name="PLAINTEXT", host=host, port=1234)],
        kraft_version_feature=SupportedKRaftVersions(min_supported_version=0, max_supported_version=1),
    )


def add(member: Member, *, cluster_id: str = CLUSTER_ID, listeners: bool = True) -> AddRaftVoterRequest:
    return AddRaftVoterRequest(
        cluster_id=cluster_id,
        timeout_ms=5000,
        voter_id=member.id,
        voter_directory_id=member.directory_id,
        listeners=[LeaderEndpoint(name="PLAINTEXT", host=member.name, port=member.id)] if listeners else [],
    )


async def refused(change: Awaitable[None]) -> ErrorCode:
    with pytest.raises(ApiError) as error:
        await change
    return error.value.code


def test_a_voter_that_moved_tells_the_leader_and_all_know(tmp_path: Path) -> None:
    """It is started with a config that puts it elsewhere; nobody else is told by hand."""

    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        moved = next(member for member in cluster.members.values() if member is not leader)
        await leader.node.append([setting("a", "1")])
        await moved.stop()
        # The network here finds nodes by port, so only the host is another one.
        moved.properties = {
            key: value.replace(f"@node-{moved.id}:", f"@moved-{moved.id}:") for key, value in moved.properties.items()
        }
        await moved.start()
        expected = (VoterEndpoint("PLAINTEXT", f"moved-{moved.id}", moved.id),)
        await cluster.until(lambda: all(endpoints(item, moved.id) == expected for item in cluster.members.values()))
        assert leader.node.core.voters.ids == (1, 2, 3)
        await leader.node.append([setting("b", "2")])

    run(scenario, tmp_path)


def test_a_leader_that_moved_records_it_itself(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        own = leader.node.as_voter
        elsewhere = (VoterEndpoint("PLAINTEXT", f"moved-{leader.id}", leader.id),)
        leader.node._step(lambda: leader.node.core.listens_at(elsewhere, leader.node.now_ms()))
        await cluster.until(lambda: all(endpoints(item, leader.id) == elsewhere for item in cluster.members.values()))
        assert own.endpoints != elsewhere

    run(scenario, tmp_path)


def test_an_update_is_for_the_leader_of_this_epoch_and_this_disk(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        node, other = leader.node, next(member for member in cluster.members.values() if member is not leader)
        assert await refused(node.update_voter(update(other, node.epoch - 1))) is ErrorCode.FENCED_LEADER_EPOCH
        foreign = update(other, node.epoch, cluster_id="another")
        assert await refused(node.update_voter(foreign)) is ErrorCode.INCONSISTENT_CLUSTER_ID
        wiped = update(other, node.epoch, directory=UUID(int=5))
        assert await refused(node.update_voter(wiped)) is ErrorCode.VOTER_NOT_FOUND
        follower = other.node.update_voter(update(other, other.node.epoch))
        assert await refused(follower) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await node.update_voter(update(other, node.epoch))
        assert endpoints(leader, other.id) == (VoterEndpoint("PLAINTEXT", "elsewhere", 1234),)

    run(scenario, tmp_path)


def test_voters_are_added_and_removed_by_hand(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        node = leader.node
        fourth = cluster.add(4, {**JOINING, **BY_HAND})
        early = add(fourth)
        assert await refused(node.add_voter(early)) is ErrorCode.REQUEST_TIMED_OUT, "nobody follows under that id"
        await fourth.start()
        await cluster.until(lambda: [item.replica_id for item in node.describe().observers] == [4])
        assert await refused(node.add_voter(add(fourth, cluster_id="another"))) is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert await refused(node.add_voter(add(fourth, listeners=False))) is ErrorCode.INVALID_REQUEST
        await node.add_voter(add(fourth))
        assert list(node.core.voters.ids) == [1, 2, 3, 4]
        assert await refused(node.add_voter(add(fourth))) is ErrorCode.DUPLICATE_VOTER
        gone = RemoveRaftVoterRequest(cluster_id=None, voter_id=4, voter_directory_id=UUID(int=1))
        assert await refused(node.remove_voter(gone)) is ErrorCode.VOTER_NOT_FOUND
        gone = RemoveRaftVoterRequest(cluster_id=CLUSTER_ID, voter_id=4, voter_directory_id=fourth.directory_id)
        await node.remove_voter(gone)
        assert list(node.core.voters.ids) == [1, 2, 3]

    run(scenario, tmp_path)


def test_a_voter_that_could_not_be_written_down_is_not_said_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        node = (await cluster.wait_for_leader()).node
        other = next(member for member in cluster.members.values() if member.id != node.node_id)
        gone = RemoveRaftVoterRequest(cluster_id=None, voter_id=other.id, voter_directory_id=other.directory_id)

        def no_space(*_arguments: object) -> Appended:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")

        with monkeypatch.context() as full:
            full.setattr(QuorumLog, "append", no_space)
            assert await refused(node.remove_voter(gone)) is ErrorCode.KAFKA_STORAGE_ERROR
        assert list(node.core.voters.ids) == [1, 2, 3]
        await node.remove_voter(gone)
        assert len(node.core.voters.ids) == 2

    run(scenario, tmp_path)


def test_two_processes_with_one_id_do_not_take_the_vote_from_one_another(tmp_path: Path) -> None:
    """The voter still fetches, so that whoever comes with its id and another disk does not have it removed."""

    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        voter = next(member for member in cluster.members.values() if member is not leader)
        twin = Member(cluster, voter.id, tmp_path / "twin", {**voters(1, 2, 3)})
        twin.directory_id = UUID(int=4242)
        await twin.start()
        await cluster.until(lambda: twin.node.core.high_watermark > 0)
        role = leader.node.core.role
        assert isinstance(role, Leader)
        for _ in range(4):
            progress = role.progress.find(ReplicaKey(voter.id, voter.directory_id))
            assert progress is not None
            before_ms = progress.fetched_ms
            assert isinstance(twin.node.core.role, Follower)
            await twin.node._membership._care_once(twin.node.core.role)
            while progress.fetched_ms <= before_ms + CLOCK_JITTER_MS:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        found = leader.node.core.voters.find(voter.id)
        assert found is not None
        assert found.directory_id == voter.directory_id
        await twin.stop()

    run(scenario, tmp_path)
