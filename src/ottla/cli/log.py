"""`ottla log`: look into the files of a partition, with no broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.failures import CommandError, Exit
from ottla.cli.log_files import SegmentDump, dump_index, dump_segment, dump_snapshot, dump_text, json_row, text_row
from ottla.cli.options import Output, OutputOption, chosen_output
from ottla.cli.output import write_json, write_rows

app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode="markdown")

BATCH_COLUMNS = (
    "position",
    "offsets",
    "records",
    "bytes",
    "codec",
    "epoch",
    "producer",
    "max time",
    "flags",
    "crc",
)
RECORD_COLUMNS = ("offset", "time", "key", "value", "headers")
INDEX_COLUMNS = {
    ".index": ("offset", "position"),
    ".timeindex": ("timestamp", "offset"),
    ".txnindex": ("producer", "first", "last", "stable"),
}
PRODUCER_COLUMNS = ("producer", "epoch", "sequences", "offset", "transaction", "coordinator", "time")
SEGMENT_SUFFIXES = (".log", ".checkpoint")
"""Snapshots of the metadata are batches, too."""
TEXT_NAMES = ("checkpoint", "metadata", "properties", "quorum-state", ".kafka_cleanshutdown")


@app.callback()
def log() -> None:
    """Look into segments, indexes, snapshots and checkpoints, those of Ottla or of Apache Kafka."""


@app.command(
    epilog="`ottla log dump data/orders-0`  \n"
    "`ottla log dump data/orders-0/00000000000000000000.log --records`  \n"
    "`ottla log dump data/orders-0/00000000000000000000.timeindex`"
)
def dump(
    path: Annotated[
        Path,
        typer.Argument(help="A file of a partition, or a partition's directory, for its segments.", show_default=False),
    ],
    records: Annotated[bool, typer.Option("--records", help="Show the records of each batch.")] = False,
    output: OutputOption = None,
) -> None:
    """Print batches with their positions, offsets and checksums. Exit code 1 if one of them is bad."""
    files = _files(path)
    chosen = chosen_output(output)
    damage = [problem for file in files for problem in _dump_file(file, records, chosen, titled=len(files) > 1)]
    if damage:
        raise CommandError("; ".join(damage))


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise CommandError(f"{path}: there is no such file or directory", Exit.NOT_FOUND)
    if path.is_file():
        return [path]
    files = sorted(path.glob("*.log"))
    if not files:
        raise CommandError(f"{path}: no segments (*.log) in it; name the directory of a partition", Exit.NOT_FOUND)
    return files


def _dump_file(file: Path, records: bool, output: Output, *, titled: bool) -> list[str]:
    """Print one file; what is wrong with it comes back."""
    if file.suffix in INDEX_COLUMNS:
        write_rows(dump_index(file), INDEX_COLUMNS[file.suffix], output)
        return []
    if file.suffix in SEGMENT_SUFFIXES:
        return _dump_segment(file, records, output, titled=titled)
    if file.suffix == ".snapshot":
        producers, problems = dump_snapshot(file)
        write_rows(producers, PRODUCER_COLUMNS, output)
        return problems
    if file.name.endswith(TEXT_NAMES):
        sys.stdout.write(dump_text(file))
        return []
    raise CommandError(
        f"{file}: not a segment (.log), a metadata snapshot (.checkpoint), an index (.index, .timeindex, .txnindex), "
        "a snapshot of producers (.snapshot) or a checkpoint",
        Exit.USAGE,
    )


def _dump_segment(file: Path, records: bool, output: Output, *, titled: bool) -> list[str]:
    segment = SegmentDump()
    record_row = json_row if output is Output.JSON else text_row
    batches = dump_segment(file, segment, record_row if records else None)
    if output is Output.JSON:
        write_json({"file": str(file), "batches": list(batches), "problems": segment.problems})
        return segment.problems
    if titled:
        sys.stdout.write(f"{file}\n")
    if not records:
        write_rows(list(batches), BATCH_COLUMNS, output)
        return segment.problems
    for batch in batches:
        write_rows([batch], BATCH_COLUMNS, output)
        found = batch.get("content")
        if isinstance(found, list) and found:
            write_rows(found, RECORD_COLUMNS, output)
    return segment.problems
