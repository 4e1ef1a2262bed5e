"""The metadata log's batches as the quorum sees them: records for the controller, and control records with voters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.core.controller.feature_levels import KRAFT_VERSION_LEVEL
from ottla.core.controller.records import Record
from ottla.core.quorum.voters import Voter, VoterEndpoint, VoterSet
from ottla.model.errors import ApiError, CorruptLogError, MalformedMessageError
from ottla.runtime.metadata_codec import KRAFT_VERSION, KRAFT_VOTERS, control_kind, decode_record
from ottla.wire import batch as record_batch
from ottla.wire import records as wire_records
from ottla.wire.batch import BatchHeader
from ottla.wire.messages.metadata_records import (
    Endpoint,
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
    VotersRecordVoter,
)
from ottla.wire.schema import Message, decode


class LoggedBatch(NamedTuple):
    """One batch of the log, read."""

    base_offset: int
    last_offset: int
    epoch: int
    size: int
    records: Sequence[Record] = ()
    voters: tuple[int, VoterSet] | None = None
    """The offset of a record with voters, and the voters, if it has one."""
    position: int = 0
    """Where it begins in the bytes that it was read from."""


def read_batches(data: memoryview) -> list[LoggedBatch]:
    """The whole batches in some bytes of the log; CorruptLogError for one that cannot be read."""
    return [
        read_batch(data[position : position + header.size], header)._replace(position=position)
        for position, header in record_batch.iterate(data)
    ]


def read_batch(batch: memoryview, header: BatchHeader) -> LoggedBatch:
    try:
        found = list(wire_records.iterate(batch))
        if not header.is_control:
            records = [decode_record(record.value or b"") for record in found]
            return _logged(header, records, None)
        voters = None
        for record in found:
            if control_kind(record.key) == KRAFT_VOTERS:
                voters = record.offset, read_voters(record.value or b"")
    except (ApiError, MalformedMessageError) as error:
        raise CorruptLogError(f"the metadata log, offset {header.base_offset}: {error}") from error
    return _logged(header, (), voters)


def _logged(header: BatchHeader, records: Sequence[Record], voters: tuple[int, VoterSet] | None) -> LoggedBatch:
    return LoggedBatch(
        header.base_offset, header.last_offset, header.partition_leader_epoch, header.size, records, voters
    )


def voter_records(voters: VoterSet, *, with_version: bool) -> list[tuple[int, Message]]:
    """The control records that say who votes."""
    members = [
        VotersRecordVoter(
            voter_id=voter.id,
            voter_directory_id=voter.directory_id,
            endpoints=[Endpoint(name=name, host=host, port=port) for name, host, port in voter.endpoints],
            kraft_version_feature=KRaftVersionFeature(
                min_supported_version=0, max_supported_version=KRAFT_VERSION_LEVEL
            ),
        )
        for voter in voters.voters
    ]
    version = (KRAFT_VERSION, KRaftVersionRecord(kraft_version=KRAFT_VERSION_LEVEL))
    return [*([version] if with_version else ()), (KRAFT_VOTERS, VotersRecord(voters=members))]


def read_voters(value: bytes) -> VoterSet:
    """The voters of a control record."""
    record = decode(VotersRecord, value, 0)
    return VoterSet.of(
        [
            Voter(
                voter.voter_id,
                voter.voter_directory_id,
                tuple(VoterEndpoint(point.name, point.host, point.port) for point in voter.endpoints),
            )
            for voter in record.voters
        ]
    )
