"""`ottla produce`: records from standard input or a file to a topic."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated

import typer

from ottla.cli.failures import CommandError, Exit, UsageError, say
from ottla.cli.interrupts import InputInterruptedError, Interrupts
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, connect
from ottla.cli.production import Production, production_bar, watched
from ottla.cli.record_input import LineReader, header_name
from ottla.client.errors import ClientError
from ottla.client.producer import Producer, ProducerSettings

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

DELIVERY_TIMEOUT_MS = 30_000


class Compression(StrEnum):
    """Kafka's codecs."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    """Who must have a record before it counts as delivered."""

    ALL = "all"
    LEADER = "1"
    NOBODY = "0"

    @property
    def number(self) -> int:
        return -1 if self is Acks.ALL else int(self.value)


@app.command(
    epilog="`echo hello | ottla produce orders`  \n"
    "`ottla produce orders --file orders.csv --key-separator , --compression zstd`  \n"
    '`echo \'{"key": "a", "value": {"n": 1}}\' | ottla produce orders --json`'
)
def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.", show_default=False)],
    file: Annotated[str | None, typer.Option("--file", metavar="FILE", help="Read this, not standard input.")] = None,
    json_lines: Annotated[
        bool, typer.Option("--json", help="Lines are objects with key, value, headers, partition, timestamp.")
    ] = False,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="A line is key, separator, value.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of records that have none.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="KEY=VALUE", help="On each record; several times.")
    ] = None,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="Write to this one.")] = None,
    compression: Annotated[Compression, typer.Option("--compression", "-z", help="The codec.")] = Compression.NONE,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have a record.")] = Acks.ALL,
    idempotent: Annotated[
        bool, typer.Option("--idempotent", help="Let the broker drop what a repeated request brings twice.")
    ] = False,
    null_marker: Annotated[
        str | None, typer.Option("--null-marker", metavar="TEXT", help="A key or value that equals this is null.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Write each line of the input as a record."""
    if json_lines and (key_separator is not None or null_marker is not None):
        raise UsageError("--json lines name keys and nulls themselves: leave --key-separator and --null-marker out")
    if key_separator == "":
        raise UsageError("--key-separator must not be empty")
    settings = ProducerSettings(
        acks=acks.number,
        idempotent=idempotent,
        compression=compression.value,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
    )
    settings.check()
    reader = LineReader(json_lines=json_lines, key_separator=_bytes(key_separator), null_marker=_bytes(null_marker))
    headers = tuple(_header(pair) for pair in header or ())
    with connect(bootstrap) as cluster, _input(file) as descriptor:
        producer = Producer(cluster, settings)
        production = Production(producer, topic, reader, key=_bytes(key), headers=headers, partition=partition)
        cluster.topic(topic, auto_create=True)
        try:
            shown = not quiet and (file is not None or watched())
            with Interrupts() as interrupts, production_bar(shown, _size(descriptor)) as bar:
                production.run(descriptor, bar, interrupts.read)
            producer.flush()
        except InputInterruptedError:
            _finish_interrupted(producer, production, quiet)
            raise typer.Exit(Exit.INTERRUPTED) from None
    if not quiet:
        sys.stderr.write(production.summary() + "\n")


def _finish_interrupted(producer: Producer, production: Production, quiet: bool) -> None:
    """Ctrl-C ends the input, not the records that were read already."""
    try:
        producer.flush()
    except ClientError as error:
        say(f"interrupted; {error}")
        return
    if not quiet:
        say(f"interrupted after {production.summary()}")


@contextmanager
def _input(file: str | None) -> Iterator[int]:
    if file is None or file == "-":
        yield sys.stdin.fileno()
        return
    if os.path.isdir(file):
        raise UsageError(f"--file: {file} is a directory")
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise CommandError(f"--file: cannot read {file}: {error.strerror}", Exit.USAGE) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _size(descriptor: int) -> int | None:
    """The bytes of a regular file; None for a pipe or a terminal, whose end nobody knows."""
    return os.fstat(descriptor).st_size or None


def _header(pair: str) -> tuple[str, bytes | None]:
    """As it was typed: a name may come again, and blanks belong to the value."""
    name, separator, value = pair.partition("=")
    if not separator or not name:
        raise UsageError(f"--header {pair!r}: write it as KEY=VALUE")
    try:
        return header_name(name), _bytes(value)
    except ValueError as error:
        raise UsageError(f"--header {pair!r}: {error}") from None


def _bytes(text: str | None) -> bytes | None:
    """The bytes that the user typed, whatever they are."""
    return None if text is None else os.fsencode(text)
