"""OffsetCommit by hand says what the declared messages say."""

from __future__ import annotations

import contextlib
from itertools import chain
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import MalformedMessageError
from ottla.wire import offset_commit as codec
from ottla.wire.headers import encode_response
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.schema import decode, encode

int32s = st.integers(-(1 << 31), (1 << 31) - 1)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)
names = st.text(max_size=8) | st.text("aé", min_size=120, max_size=140)
versions = st.integers(codec.VERSION_MIN, codec.VERSION_MAX)
partitions = st.builds(
    OffsetCommitRequestPartition,
    partition_index=int32s,
    committed_offset=int64s,
    committed_leader_epoch=int32s,
    committed_metadata=st.none() | names,
)
topics = st.builds(
    OffsetCommitRequestTopic,
    name=names,
    topic_id=st.uuids(),
    partitions=st.lists(partitions, max_size=3) | st.lists(partitions, min_size=126, max_size=130),
)
requests = st.builds(
    OffsetCommitRequest,
    group_id=names,
    generation_id_or_member_epoch=int32s,
    member_id=names,
    group_instance_id=st.none() | names,
    topics=st.lists(topics, max_size=3),
)


def expected(request: OffsetCommitRequest, version: int) -> codec.OffsetCommit:
    by_id = version >= codec.TOPIC_ID_SINCE
    return codec.OffsetCommit(
        request.group_id,
        request.generation_id_or_member_epoch,
        request.member_id,
        request.group_instance_id,
        request.retention_time_ms,
        [
            (
                topic.topic_id if by_id else topic.name,
                [
                    codec.AskedPartition(
                        asked.partition_index,
                        asked.committed_offset,
                        asked.committed_leader_epoch,
                        asked.committed_metadata,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def sendable(request: OffsetCommitRequest, version: int) -> OffsetCommitRequest:
    if version < 7:
        request.group_instance_id = None
    return request


@given(requests, versions)
def test_a_request_is_what_the_declared_message_says(request: OffsetCommitRequest, version: int) -> None:
    body = encode(sendable(request, version), version)
    parsed = codec.parse(memoryview(b"head" + body), 4, version)
    assert parsed == expected(decode(OffsetCommitRequest, body, version), version)


def common(version: int, partition_count: int = 2) -> bytes:
    wanted = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=5, committed_metadata="m")
        for index in range(partition_count)
    ]
    topic = OffsetCommitRequestTopic(name="t", topic_id=UUID(int=7), partitions=wanted)
    request = OffsetCommitRequest(group_id="g", member_id="m-1", group_instance_id="i", topics=[topic])
    return encode(request, version)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_the_common_request_takes_the_short_way(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    body = common(version)
    monkeypatch.setattr(codec, "decode", None)
    assert codec.parse(memoryview(body), 0, version).group_id == "g"


@pytest.mark.parametrize("version", [8, 10])
def test_tagged_fields_are_passed_over(version: int) -> None:
    body = common(version)
    tagged = body[:-1] + b"\x01\x63\x01x"
    assert codec.parse(memoryview(tagged), 0, version) == codec.parse(memoryview(body), 0, version)


@pytest.mark.parametrize("version", range(codec.VERSION_MIN, codec.VERSION_MAX + 1))
def test_a_request_that_ends_early_or_late_is_refused(version: int) -> None:
    body = common(max(version, 7)) if version >= 7 else encode(OffsetCommitRequest(group_id="g", topics=[]), version)
    for damaged in [*(body[:end] for end in range(len(body))), body + b"\x00"]:
        with pytest.raises(MalformedMessageError):
            codec.parse(memoryview(damaged), 0, version)


@given(st.data(), st.integers(8, 10))
def test_what_is_damaged_is_what_the_declared_message_says(data: st.DataObject, version: int) -> None:
    body = bytearray(common(version))
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    wanted = found = None
    with contextlib.suppress(MalformedMessageError):
        wanted = expected(decode(OffsetCommitRequest, bytes(body), version), version)
    with contextlib.suppress(MalformedMessageError):
        found = codec.parse(memoryview(body), 0, version)
    assert found == wanted


@given(requests, versions)
def test_an_answer_is_what_the_declared_message_says(request: OffsetCommitRequest, version: int) -> None:
    asked = expected(request, version).topics
    codes = [[(index + place) % 90 for place, _ in enumerate(items)] for index, (_, items) in enumerate(asked)]
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.index, error_code=code)
                    for partition, code in zip(items, of_topic, strict=True)
                ],
            )
            for topic, (_, items), of_topic in zip(request.topics, asked, codes, strict=True)
        ]
    )
    flat = chain.from_iterable(codes)
    assert codec.encode_response(version, 42, asked, flat) == encode_response(response, version, 42)
