"""FindCoordinator: which broker looks after a group or a transactional id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.wire.schema import Int8, Int16, Int32, Message, String, ignorable, since, until


class FindCoordinatorRequest(Message, api_key=10, versions=(0, 6), flexible_since=3):
    """Asks for the coordinator of one key, from version 4 on of several; type 0 are groups, 1 transactional ids."""

    key: Annotated[String, until(3)] = ""
    key_type: Annotated[Int8, since(1)] = 0
    coordinator_keys: Annotated[Sequence[String], since(4)] = []


class Coordinator(Message):
    """The coordinator of one key."""

    key: String
    node_id: Int32 = -1
    host: String = ""
    port: Int32 = -1
    error_code: Int16 = 0
    error_message: String | None = None


class FindCoordinatorResponse(Message, api_key=10, versions=(0, 6), flexible_since=3):
    """The coordinator, from version 4 on one for each key."""

    throttle_time_ms: Annotated[Int32, since(1), ignorable] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[String | None, since(1), until(3), ignorable] = None
    node_id: Annotated[Int32, until(3), ignorable] = -1
    host: Annotated[String, until(3)] = ""
    port: Annotated[Int32, until(3), ignorable] = -1
    coordinators: Annotated[Sequence[Coordinator], since(4)] = []
