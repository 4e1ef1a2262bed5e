"""What other nodes are answered: about the one partition, in this cluster, and nothing before it is on disk."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID
from ottla.runtime.quorum_requests import is_metadata_fetch
from ottla.wire import fetch_types
from ottla.wire.messages import begin_quorum_epoch, end_quorum_epoch, fetch_snapshot
from ottla.wire.messages.vote import VotePartition, VoteRequest, VoteTopic
from tests.unit.runtime.quorum_cluster import CLUSTER_ID, Member, QuorumCluster, setting, three_nodes

SMALL = {"metadata.log.max.record.bytes.between.snapshots": "2000", "internal.metadata.log.segment.bytes": "4000"}


def run(
    scenario: Callable[[QuorumCluster], Awaitable[None]], path: Path, properties: dict[str, str] | None = None
) -> None:
    async def main() -> None:
        async with three_nodes(path, properties) as cluster:
            await scenario(cluster)

    asyncio.run(main())


def vote(to: Member, epoch: int, *, cluster_id: str | None = CLUSTER_ID, topic: str = METADATA_TOPIC,
         directory: UUID | None = None, index: int = 0, candidate: int = 7) -> VoteRequest:  # fmt: skip
    partition = VotePartition(
        partition_index=index,
        replica_epoch=epoch,
        replica_id=candidate,
        replica_directory_id=UUID(int=candidate),
        voter_directory_id=directory or to.directory_id,
        last_offset_epoch=1000,
        last_offset=1000,
        pre_vote=False,
    )
    return VoteRequest(
        cluster_id=cluster_id, voter_id=to.id, topics=[VoteTopic(topic_name=topic, partitions=[partition])]
    )


def fetch(member: Member, *, cluster_id: str = CLUSTER_ID, index: int = 0, epoch: int = 0, wait_ms: int = 0,
          offset: int = 0) -> fetch_types.FetchRequest:  # fmt: skip
    partition = fetch_types.FetchPartition(index, epoch or member.node.epoch, offset, 0, 0, 1 << 20)
    return fetch_types.FetchRequest(
        replica_id=-1,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[(METADATA_TOPIC_ID, [partition])],
        forgotten=[],
        rack_id="",
        cluster_id=cluster_id,
        replica_epoch=-1,
        followed={},
    )


def test_a_vote_is_on_disk_when_it_is_answered(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        member = next(item for item in cluster.members.values() if item is not leader)
        answer = await member.node.vote(vote(member, 50))
        result = answer.topics[0].partitions[0]
        assert (result.error_code, result.vote_granted, result.leader_epoch) == (0, True, 50)
        stored = json.loads((member.path / "__cluster_metadata-0/quorum-state").read_text())
        assert (stored["leaderEpoch"], stored["votedId"]) == (50, 7)
        again = await member.node.vote(vote(member, 50, candidate=8))
        assert not again.topics[0].partitions[0].vote_granted

    run(scenario, tmp_path)


def test_requests_for_others_are_refused(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        node, epoch = leader.node, leader.node.epoch
        foreign = await node.vote(vote(leader, 50, cluster_id="another"))
        assert foreign.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        assert (await node.vote(vote(leader, 50, topic="orders"))).error_code == ErrorCode.INVALID_REQUEST
        wrong = await node.vote(vote(leader, 50, index=1))
        assert wrong.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        wiped = await node.vote(vote(leader, 50, directory=UUID(int=99)))
        assert wiped.topics[0].partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
        begin = begin_quorum_epoch.BeginQuorumEpochRequest(cluster_id="another", voter_id=1, topics=[])
        assert (await node.begin_quorum_epoch(begin)).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        end = end_quorum_epoch.EndQuorumEpochRequest(cluster_id=CLUSTER_ID, topics=[])
        assert (await node.end_quorum_epoch(end)).error_code == ErrorCode.INVALID_REQUEST
        assert (await node.fetch(fetch(leader, cluster_id="another")))[0] is ErrorCode.INCONSISTENT_CLUSTER_ID
        assert (await node.fetch(fetch(leader, index=3)))[0] is ErrorCode.INVALID_REQUEST
        assert node.epoch == epoch, "none of it has changed anything"
        assert node.is_leader

    run(scenario, tmp_path)


def test_a_fetch_reads_the_log_and_a_follower_names_the_leader(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        await leader.node.append([setting("a", "1")])
        error, found, endpoints = await leader.node.fetch(fetch(leader))
        assert (error, found.error_code) == (ErrorCode.NONE, ErrorCode.NONE)
        assert found.records
        assert [(item.node_id, item.port) for item in endpoints] == [(leader.id, leader.id)]
        follower = next(item for item in cluster.members.values() if item is not leader)
        await cluster.until(lambda: follower.node.leader_id == leader.id)
        _, elsewhere, endpoints = await follower.node.fetch(fetch(follower, epoch=leader.node.epoch))
        assert elsewhere.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert [item.node_id for item in endpoints] == [leader.id]
        _, fenced, _ = await leader.node.fetch(fetch(leader, epoch=leader.node.epoch + 5))
        assert fenced.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH

    run(scenario, tmp_path)


def test_a_snapshot_is_read_in_parts_and_only_where_it_is(tmp_path: Path) -> None:
    async def scenario(cluster: QuorumCluster) -> None:
        leader = await cluster.wait_for_leader()
        for number in range(60):
            await leader.node.append([setting(f"key{number}", "x" * 50)])
        await cluster.until(lambda: leader.node.log.snapshots)
        latest = leader.node.log.snapshots[0]
        path = leader.path / "__cluster_metadata-0" / latest.file_name

        async def part(position: int, end_offset: int = latest.end_offset) -> fetch_snapshot.PartitionSnapshotResult:
            asked = fetch_snapshot.PartitionSnapshot(
                partition=0,
                current_leader_epoch=leader.node.epoch,
                snapshot_id=fetch_snapshot.SnapshotId(end_offset=end_offset, epoch=latest.epoch),
                position=position,
            )
            request = fetch_snapshot.FetchSnapshotRequest(
                cluster_id=CLUSTER_ID,
                replica_id=9,
                max_bytes=100,
                topics=[fetch_snapshot.TopicSnapshot(name=METADATA_TOPIC, partitions=[asked])],
            )
            return (await leader.node.fetch_snapshot(request)).topics[0].partitions[0]

        whole = path.read_bytes()
        first, second = await part(0), await part(100)
        assert bytes(first.unaligned_records or b"") + bytes(second.unaligned_records or b"") == whole[:200]
        assert first.size == len(whole)
        assert (await part(len(whole))).error_code == ErrorCode.POSITION_OUT_OF_RANGE
        assert (await part(-1)).error_code == ErrorCode.POSITION_OUT_OF_RANGE
        assert (await part(0, end_offset=10**6)).error_code == ErrorCode.SNAPSHOT_NOT_FOUND

    run(scenario, tmp_path, SMALL)


def test_a_fetch_of_other_topics_is_not_for_the_quorum() -> None:
    request = fetch_types.FetchRequest(-1, 0, 1, 1, 0, 0, -1, [(METADATA_TOPIC, [])], [], "", None, -1, {})
    assert is_metadata_fetch(request)
    assert not is_metadata_fetch(request._replace(topics=[("orders", [])]))
    assert not is_metadata_fetch(request._replace(topics=[(METADATA_TOPIC, []), ("orders", [])]))
    assert not is_metadata_fetch(request._replace(topics=[]))
