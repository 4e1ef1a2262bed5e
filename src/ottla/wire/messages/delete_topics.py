"""DeleteTopics: by name, from version 6 on by id too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from ottla.model.ids import ZERO_UUID
from ottla.wire.schema import Int16, Int32, Message, String, Uuid, ignorable, nullable_since, since, until


class DeleteTopicState(Message):
    """A topic by its name, or by its id when the name is null."""

    name: String | None = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Message, api_key=20, versions=(1, 6), flexible_since=4):
    """Asks for topics to be gone: `topics` from version 6 on, `topic_names` before."""

    topics: Annotated[Sequence[DeleteTopicState], since(6)] = []
    topic_names: Annotated[Sequence[String], until(5), ignorable] = []
    timeout_ms: Int32


class DeletableTopicResult(Message):
    """What became of one topic; the name is null where an id was given that nobody knows."""

    name: Annotated[String | None, nullable_since(6)]
    topic_id: Annotated[Uuid, since(6), ignorable] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[String | None, since(5), ignorable] = None


class DeleteTopicsResponse(Message, api_key=20, versions=(1, 6), flexible_since=4):
    """One result for each topic."""

    throttle_time_ms: Int32 = 0
    responses: Sequence[DeletableTopicResult]
