"""OffsetDelete, from request to answer."""

from __future__ import annotations

import pytest

from ottla.api import offset_delete
from ottla.model.errors import ErrorCode
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.unit.api.offset_services import OffsetServices


def delete(services: OffsetServices, group_id: str, *topics: tuple[str, list[int]]) -> OffsetDeleteResponse:
    request = OffsetDeleteRequest(
        group_id=group_id,
        topics=[
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
            )
            for name, partitions in topics
        ],
    )
    return services.ask(offset_delete, request, 0, OffsetDeleteResponse)


@pytest.mark.parametrize("later", [False, True])
def test_offsets_are_deleted(later: bool) -> None:
    services = OffsetServices()
    services.groups.later = later
    services.coordinator.commit(5)
    services.coordinator.commit(6, partition=1)
    answer = delete(services, "g", ("x", [0]), ("t", [3, 0]))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.error_code == 0
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics] == [
        ("x", [(0, unknown)]),
        ("t", [(3, unknown), (0, 0)]),
    ]
    assert (services.coordinator.fetch().offset, services.coordinator.fetch(partition=1).offset) == (-1, 6)


@pytest.mark.parametrize(("group_id", "code"), [("", ErrorCode.INVALID_GROUP_ID), ("x", ErrorCode.GROUP_ID_NOT_FOUND)])
def test_groups_that_cannot_be(group_id: str, code: ErrorCode) -> None:
    answer = delete(OffsetServices(), group_id, ("t", [0]))
    assert (answer.error_code, answer.topics) == (code, [])
