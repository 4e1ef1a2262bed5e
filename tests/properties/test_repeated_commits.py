"""Requests that are answered by what is known of earlier ones: nobody can tell.

Two brokers get the same requests, and the same happens to them. One remembers, the other one never does. Every answer
is the same, every byte of the log, and the state that comes of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.core.groups.consumer_commands import ConsumerGroupHeartbeat
from ottla.core.groups.offset_commands import CommitTransactionalOffsets, NewOffset
from ottla.core.groups.records import ClassicGroupRecord
from ottla.model.configs.resolve import TopicConfig
from ottla.runtime.repeated_commits import RepeatedCommits
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.schema import encode
from tests.unit.api.committing_node import COMPACTED, HOURS_MS, IDS, CommittingNode, stable

STEPS = 60
NEXT = 1000
GROUPS = "gh"


class Forgetful(RepeatedCommits):
    """Everything is asked for the first time."""

    def note(self, *_: Any) -> None:
        pass


class Shape(NamedTuple):
    """What stays the same of a consumer's requests."""

    version: int
    group: str
    who: tuple[str, int, str | None]
    places: list[tuple[str, int]]


def frame_of(shape: Shape, offset: int, note: str | None, more: str) -> bytes:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            topic_id=IDS.get(name, UUID(int=9)),
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_leader_epoch=4,
                    committed_metadata=note,
                )
            ],
        )
        for name, partition in shape.places
    ]
    if more == "empty topic":
        topics.append(OffsetCommitRequestTopic(name="t", topic_id=IDS["t"], partitions=[]))
    member_id, epoch, instance_id = shape.who
    request = OffsetCommitRequest(
        group_id=shape.group,
        member_id=member_id,
        generation_id_or_member_epoch=epoch,
        group_instance_id=instance_id,
        topics=topics,
    )
    data = encode(request, shape.version)
    if shape.version >= 8 and more == "tags":
        # One that nobody knows, with a content that looks like the end of a request.
        data = data[:-1] + b"\x01\x63\x10" + offset.to_bytes(8, signed=True) + b"\0\0\0\4\1\0\0\0"
    return data


def any_shape(rng: Random, *, has_members: bool) -> Shape:
    usual = ("m", 3, None) if has_members else ("", -1, None)
    return Shape(
        rng.choice([8, 9, 9, 10, 10, 7]),
        rng.choice(GROUPS),
        rng.choice([usual] * 12 + [("", -1, None), ("m", 3, None), ("m", 2, None), ("m", 3, "i")]),
        rng.choice([[("t", 0)]] * 12 + [[("t", 1)], [("u", 0)], [("t", 2)], [("x", 0)], [("t", 0), ("u", 0)], []]),
    )


def any_request(rng: Random, shape: Shape) -> bytes:
    offset = rng.choice([rng.randrange(10), rng.randrange(10), rng.randrange(1 << 63), -1, -2, NEXT])
    note = rng.choice(["", None, "", None, "", None, "n", "\x01", "\x00"])
    more = rng.choice([""] * 8 + ["tags", "empty topic"])
    return frame_of(shape, offset, note, more)


def any_happening(rng: Random) -> tuple[Any, ...]:
    group, producer_id = rng.choice(GROUPS), rng.choice([5, 6])
    happenings: list[tuple[Any, ...]] = [
        ("know", rng.choice([{"t": 2, "u": 1}, {"t": 2, "u": 1}, {"t": 3}, {"u": 1}])),
        ("stable", group, rng.choice([2, 3, 3])),
        ("gone", group),
        ("consumer", group),
        ("hold", group, producer_id, rng.randrange(10)),
        ("marker", group, producer_id, rng.choice([True, False])),
        ("resign", group),
        ("elect", group),
        ("elect", group),
        ("full",),
        ("time", rng.randrange(1, 500)),
    ]
    return rng.choice(happenings)


def happen(node: CommittingNode, step: tuple[Any, ...]) -> None:
    match step:
        case ("know", topics):
            node.know(topics)
        case ("stable", group, generation):
            node.group_is(stable(group, generation))
        case ("gone", group):
            node.group_is(ClassicGroupRecord(group_id=group, gone=True))
        case ("consumer", group):
            node.submit(
                group,
                ConsumerGroupHeartbeat(
                    group_id=group, member_id="m", member_epoch=0, rebalance_timeout_ms=HOURS_MS,
                    subscribed_topic_names=("t",), topic_partitions=(),
                ),
            )  # fmt: skip
        case ("hold", group, producer_id, offset):
            new = NewOffset("t", IDS["t"], 0, offset)
            node.submit(
                group,
                CommitTransactionalOffsets(group_id=group, offsets=[new], producer_id=producer_id, producer_epoch=0),
            )
        case ("marker", group, producer_id, committed):
            node.marker(group, producer_id, committed=committed)
        case ("resign", group):
            node.groups.resign(node.groups.partition_for(group))
        case ("elect", group):
            node.groups.elect(node.groups.partition_for(group), 1)
        case ("full",):
            node.fail_next_write()
        case ("time", passed_ms):
            node.hosted.clock.ms += passed_ms


async def settle() -> None:
    """Let everything happen that is due."""
    for _ in range(20):
        await asyncio.sleep(0)


async def compare(rng: Random, config: TopicConfig, codec: str) -> None:
    nodes = [CommittingNode(config, codec), CommittingNode(config, codec, Forgetful())]
    has_members, eventful = rng.choice([True, False]), rng.choice([0.02, 0.05, 0.2])
    shapes = [any_shape(rng, has_members=has_members) for _ in range(rng.choice([1, 2, 4]))]
    for group in GROUPS if has_members else "":
        for node in nodes:
            happen(node, ("stable", group, 3))
    for _ in range(STEPS):
        if rng.random() < eventful:
            happening = any_happening(rng)
            for node in nodes:
                happen(node, happening)
                await node.groups.loaded()
            await settle()
        shape = rng.choice(shapes)
        frame = any_request(rng, shape)
        answers = [await node.ask(frame, shape.version) for node in nodes]
        await settle()
        assert answers[0] == answers[1]
        assert nodes[0].seen() == nodes[1].seen()
    for node in nodes:
        await node.groups.close()


@settings(max_examples=80)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([{}, {}, {"flush_messages": 1}, {"timestamp_type_log_append": True}]),
    st.sampled_from(["0", "0", "0", "2"]),
)
def test_who_remembers_answers_and_writes_as_who_does_not(seed: int, changed: dict[str, Any], codec: str) -> None:
    asyncio.run(compare(Random(seed), dataclasses.replace(COMPACTED, **changed), codec))
