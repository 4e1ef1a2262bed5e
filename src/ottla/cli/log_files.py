"""Reads the files of a partition as they lie on disk. Damage is noted and read past, not raised."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Final

from ottla.cli.failures import CommandError
from ottla.cli.record_format import json_content, json_headers, readable, readable_name, time_text
from ottla.model.errors import ApiError
from ottla.wire import records as wire_records
from ottla.wire.batch import HEADER_BYTES, BatchHeader, crc_matches, iterate
from ottla.wire.compression import Codec
from ottla.wire.crc import crc32c
from ottla.wire.records import Record

_INDEX_ENTRY: Final = Struct(">ii")
_TIME_INDEX_ENTRY: Final = Struct(">qi")
_TRANSACTION_INDEX_ENTRY: Final = Struct(">hqqqq")
_SNAPSHOT_HEAD: Final = Struct(">hIi")
_SNAPSHOT_CRC_END: Final = 6
_PRODUCER: Final = Struct(">qhiqiqiq")
_TEXT_BYTES_MAX: Final = 1 << 20

Row = dict[str, object]
RecordRow = Callable[[Record], Row]


@dataclass(slots=True)
class SegmentDump:
    """What was found wrong on the way."""

    problems: list[str] = field(default_factory=list)


def dump_segment(path: Path, dump: SegmentDump, record_row: RecordRow | None = None) -> Iterator[Row]:
    """A row for each batch of a segment, with one for each record if `record_row` makes them; problems go to `dump`."""
    with path.open("rb") as file:
        size = path.stat().st_size
        if size == 0:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped, memoryview(mapped) as view:
            yield from _batches(path, view, dump, record_row)


def _batches(path: Path, view: memoryview, dump: SegmentDump, record_row: RecordRow | None) -> Iterator[Row]:
    end = 0
    try:
        for position, header in iterate(view):
            end = position + header.size
            with view[position:end] as batch:
                row = _batch_row(position, header, crc_ok=crc_matches(batch, header))
                if row["crc"] != "ok":
                    dump.problems.append(f"{path.name}: the batch at byte {position} does not match its checksum")
                elif record_row is not None:
                    row["content"] = list(map(record_row, _records(path, batch, position, dump)))
            yield row
    except ApiError as error:
        dump.problems.append(f"{path.name}: {error.message}")
        return
    if end < len(view):
        dump.problems.append(_tail_problem(path, view, end))


def _tail_problem(path: Path, view: memoryview, end: int) -> str:
    left = len(view) - end
    with view[end : end + HEADER_BYTES] as tail:
        kind = "zeros" if not any(tail) else "a batch that was cut off"
    return f"{path.name}: {left} bytes after the last whole batch, {kind}"


def _batch_row(position: int, header: BatchHeader, *, crc_ok: bool) -> Row:
    producer = f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"
    return {
        "position": position,
        "offsets": f"{header.base_offset}-{header.last_offset}",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "records": header.record_count,
        "bytes": header.size,
        "codec": _codec_name(header.codec),
        "epoch": header.partition_leader_epoch,
        "producer": producer if header.producer_id >= 0 else "",
        "max time": time_text(header.max_timestamp),
        "max_timestamp": header.max_timestamp,
        "flags": _flags(header),
        "crc": "ok" if crc_ok else "BAD",
    }


def _codec_name(codec: int) -> str:
    return Codec(codec).name.lower() if codec in tuple(Codec) else f"unknown {codec}"


def _flags(header: BatchHeader) -> list[str]:
    flags = {
        "control": header.is_control,
        "transactional": header.is_transactional,
        "append-time": header.log_append_time,
        "delete-horizon": header.delete_horizon is not None,
    }
    return [name for name, set_ in flags.items() if set_]


def _records(path: Path, batch: memoryview, position: int, dump: SegmentDump) -> list[Record]:
    try:
        return wire_records.iterate(batch, crc_check=False)
    except ApiError as error:
        dump.problems.append(f"{path.name}: the batch at byte {position}: {error.message}")
        return []


def text_row(record: Record) -> Row:
    """A record for people."""
    return {
        "offset": record.offset,
        "time": time_text(record.timestamp),
        "key": readable(record.key),
        "value": readable(record.value),
        "headers": [f"{readable_name(name)}={readable(content)}" for name, content in record.headers],
    }


def json_row(record: Record) -> Row:
    """A record for tools, written as `ottla consume` writes it."""
    return {
        "offset": record.offset,
        "time": time_text(record.timestamp),
        "timestamp": record.timestamp,
        **json_content(record.key, record.value),
        "headers": json_headers(record.headers),
    }


def dump_index(path: Path) -> list[Row]:
    """The entries of an index; offsets are absolute. Unused space at the end is left out."""
    base = _base_offset(path)
    if path.suffix == ".txnindex":
        return _dump_transaction_index(path)
    if path.suffix == ".index":
        return [
            {"offset": base + relative, "position": position} for relative, position in _entries(path, _INDEX_ENTRY)
        ]
    return [
        {"timestamp": timestamp, "offset": base + relative} for timestamp, relative in _entries(path, _TIME_INDEX_ENTRY)
    ]


def _dump_transaction_index(path: Path) -> list[Row]:
    data = path.read_bytes()
    whole = len(data) // _TRANSACTION_INDEX_ENTRY.size * _TRANSACTION_INDEX_ENTRY.size
    columns = ("version", "producer", "first", "last", "stable")
    return [dict(zip(columns, row, strict=True)) for row in _TRANSACTION_INDEX_ENTRY.iter_unpack(data[:whole])]


def dump_snapshot(path: Path) -> tuple[list[Row], list[str]]:
    """A row for each producer that a snapshot remembers, with its last batch, where its open transaction begins and the
    epoch of the coordinator that ended one; and what is wrong with the file."""
    data = path.read_bytes()
    if len(data) < _SNAPSHOT_HEAD.size:
        return [], [f"{path.name}: {len(data)} bytes are no snapshot of producers"]
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    problems = []
    if crc32c(memoryview(data)[_SNAPSHOT_CRC_END:]) != crc:
        problems.append(f"{path.name}: the snapshot, of version {version}, does not match its checksum")
    end = _SNAPSHOT_HEAD.size + max(count, 0) * _PRODUCER.size
    whole = data[_SNAPSHOT_HEAD.size : end]
    if len(data) < end:
        problems.append(f"{path.name}: there should be {count} producers in it")
        whole = whole[: len(whole) // _PRODUCER.size * _PRODUCER.size]
    return [_producer_row(*fields) for fields in _PRODUCER.iter_unpack(whole)], problems


def _producer_row(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    transaction_start: int,
) -> Row:
    first_sequence = _first_sequence(last_sequence, offset_delta)
    return {
        "producer": producer_id,
        "epoch": epoch,
        "sequences": f"{first_sequence}-{last_sequence}" if last_sequence >= 0 else "",
        "first_sequence": first_sequence,
        "last_sequence": last_sequence,
        "offset": last_offset,
        "offset_delta": offset_delta,
        "transaction": transaction_start if transaction_start >= 0 else "",
        "coordinator": coordinator_epoch if coordinator_epoch >= 0 else "",
        "time": time_text(timestamp),
        "timestamp": timestamp,
    }


def _first_sequence(last_sequence: int, offset_delta: int) -> int:
    """Sequence numbers begin anew after the largest one; a producer of which only a marker is known has none."""
    return (last_sequence - offset_delta) % (1 << 31) if last_sequence >= 0 else last_sequence


def _entries(path: Path, layout: Struct) -> Iterator[tuple[int, int]]:
    """A running broker keeps its indexes longer than they are: the rest is zeros."""
    used = path.read_bytes().rstrip(b"\0")
    whole = -(-len(used) // layout.size) * layout.size
    return layout.iter_unpack(used.ljust(whole, b"\0"))


def dump_text(path: Path) -> str:
    """A checkpoint or properties file, which is text already."""
    return path.read_bytes()[:_TEXT_BYTES_MAX].decode(errors="replace")


def _base_offset(path: Path) -> int:
    if not path.stem.isdecimal():
        raise CommandError(f"{path.name}: an index is named after its segment's first offset, as in {0:020d}.index")
    return int(path.stem)
