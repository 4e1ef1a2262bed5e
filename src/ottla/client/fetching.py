"""One fetch from one leader: which partitions from where, and the raw batches that come back.

Sessions (KIP-227): a broker remembers what a consumer wants, so that a later fetch names only what changed, and its
answer only what has news. A session is a number and a count of fetches; when the broker has forgotten it, it starts
anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection, Pending
from ottla.client.errors import error_code
from ottla.client.offsets import Isolation
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_LEADER_EPOCH, NO_OFFSET, ZERO_UUID, TopicPartition
from ottla.wire.fetch_client import FetchResponse, encode_request, fetch_request, parse_response
from ottla.wire.fetch_types import (
    SESSION_SINCE,
    TOPIC_ID_SINCE,
    VERSION_MAX,
    VERSION_MIN,
    FetchPartition,
    PartitionData,
)
from ottla.wire.fields import TopicKey

FETCH_KEY: Final = 1
NO_SESSION: Final = 0
_FIRST_OF_A_SESSION: Final = 0
_OUTSIDE_ANY_SESSION: Final = -1
_SESSION_CODES: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
_EMPTY: Final = memoryview(b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchSettings:
    """How much a fetch brings and how long it waits for it. Picklable."""

    wait_ms_max: int = 500
    bytes_min: int = 1
    bytes_max: int = 50 << 20
    partition_bytes_max: int = 1 << 20
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    rack: str = ""


class FetchedPartition(NamedTuple):
    """What a fetch brought for one partition. The records are raw batches, the last one perhaps cut off."""

    partition: TopicPartition
    error: ErrorCode
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each aborted transaction in the range; only with READ_COMMITTED."""


class Fetched(NamedTuple):
    """The whole answer."""

    error: ErrorCode
    session_id: int
    partitions: list[FetchedPartition]


class FetchSession:
    """What one leader remembers for us."""

    __slots__ = ("_known", "epoch", "session_id")

    def __init__(self) -> None:
        self._known: dict[TopicPartition, FetchPartition] = {}
        self.session_id = NO_SESSION
        self.epoch = _FIRST_OF_A_SESSION

    @property
    def topics(self) -> set[str]:
        """The topics that the broker remembers."""
        return {partition.topic for partition in self._known}

    def changes(
        self, wanted: Mapping[TopicPartition, FetchPartition]
    ) -> tuple[dict[TopicPartition, FetchPartition], list[TopicPartition]]:
        """What to name in the next fetch: what is new or has moved, and what is no longer wanted."""
        changed = {key: entry for key, entry in wanted.items() if self._known.get(key) != entry}
        forgotten = [key for key in self._known if key not in wanted]
        self._known = dict(wanted)
        return changed, forgotten

    def take(self, fetched: Fetched) -> None:
        """Follow what the broker said about the session."""
        if fetched.error is not ErrorCode.NONE or fetched.session_id == NO_SESSION:
            self.reset()
            return
        self.session_id = fetched.session_id
        self.epoch = 1 if self.epoch == 0x7FFF_FFFF else self.epoch + 1
        if any(partition.error in _SESSION_CODES for partition in fetched.partitions):
            self.reset()

    def reset(self) -> None:
        """The next fetch names everything and asks for a new session."""
        self._known.clear()
        self.session_id = NO_SESSION
        self.epoch = _FIRST_OF_A_SESSION


def send_fetch(
    cluster: Cluster,
    connection: Connection,
    positions: Mapping[TopicPartition, int],
    settings: FetchSettings,
    session: FetchSession | None = None,
) -> Pending[Fetched]:
    """Ask the leader behind `connection` for these partitions from these offsets on. Does not wait."""
    topic_ids = {name: cluster.topic(name).topic_id for name in {partition.topic for partition in positions}}
    highest = VERSION_MAX if all(topic_id != ZERO_UUID for topic_id in topic_ids.values()) else TOPIC_ID_SINCE - 1
    version = connection.version(FETCH_KEY, "Fetch", VERSION_MIN, highest)
    keys: dict[str, TopicKey] = dict(topic_ids) if version >= TOPIC_ID_SINCE else {name: name for name in topic_ids}
    wanted = {
        partition: FetchPartition(
            partition.partition,
            cluster.leader_epoch(partition),
            offset,
            NO_LEADER_EPOCH,
            NO_OFFSET,
            settings.partition_bytes_max,
        )
        for partition, offset in positions.items()
    }
    forgotten: list[TopicPartition] = []
    session_id, epoch = NO_SESSION, _OUTSIDE_ANY_SESSION
    if session is not None and version >= SESSION_SINCE:
        if not session.topics <= keys.keys():
            session.reset()  # the id of a topic that is gone cannot be told any more
        wanted, forgotten = session.changes(wanted)
        session_id, epoch = session.session_id, session.epoch
    request = fetch_request(
        _by_topic(wanted, keys),
        max_wait_ms=settings.wait_ms_max,
        min_bytes=settings.bytes_min,
        max_bytes=settings.bytes_max,
        isolation_level=settings.isolation,
        session_id=session_id,
        session_epoch=epoch,
        forgotten=_indexes_by_topic(forgotten, keys),
        rack_id=settings.rack,
    )
    names = {key: name for name, key in keys.items()}

    def decode(body: memoryview) -> Fetched:
        return _read(parse_response(body, 0, version), names)

    return connection.send_raw(FETCH_KEY, version, encode_request(version, request), decode)


def _by_topic(
    wanted: Mapping[TopicPartition, FetchPartition], keys: Mapping[str, TopicKey]
) -> list[tuple[TopicKey, list[FetchPartition]]]:
    topics: dict[TopicKey, list[FetchPartition]] = {}
    for partition, entry in wanted.items():
        topics.setdefault(keys[partition.topic], []).append(entry)
    return list(topics.items())


def _indexes_by_topic(
    partitions: Iterable[TopicPartition], keys: Mapping[str, TopicKey]
) -> list[tuple[TopicKey, list[int]]]:
    topics: dict[TopicKey, list[int]] = {}
    for partition in partitions:
        topics.setdefault(keys[partition.topic], []).append(partition.partition)
    return list(topics.items())


def _read(answer: FetchResponse, names: Mapping[TopicKey, str]) -> Fetched:
    partitions = [
        _partition(TopicPartition(names[key], data.index), data)
        for key, entries in answer.topics
        if key in names
        for data in entries
    ]
    return Fetched(error_code(answer.error_code), answer.session_id, partitions)


def _partition(partition: TopicPartition, data: PartitionData) -> FetchedPartition:
    records = data.records if isinstance(data.records, memoryview) else _EMPTY
    return FetchedPartition(
        partition,
        error_code(data.error_code),
        records,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        tuple(data.aborted or ()),
    )
