"""`ottla consume`: records from a topic to standard output."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer

from ottla.cli.failures import CommandError, Exit, UsageError, say
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect
from ottla.cli.record_format import as_json, compile_format, plain
from ottla.cli.start_position import parse_start, resolve_start
from ottla.client.cluster import Cluster
from ottla.client.consumer import ConsumedRecord, Consumer, ConsumerSettings
from ottla.client.fetching import FetchSettings
from ottla.client.offsets import LATEST, Isolation, list_offsets
from ottla.model.ids import TopicPartition

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

Writer = Callable[[list[ConsumedRecord]], None]
POLL_MS = 1_000


@app.command(
    epilog="`ottla consume orders`  \n"
    "`ottla consume orders --follow --from end`  \n"
    "`ottla consume orders --from 2026-01-31T12:00:00 -n 10 --output json`  \n"
    "`ottla consume orders --from -5 --partition 0 -f '%p:%o %k=%s\\n'`  \n"
    "`ottla consume orders --group billing --follow`"
)
def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.", show_default=False)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, OFFSET, -N (the last N of each partition), an ISO time, @MS since 1970, an age: 15m",
        ),
    ] = "beginning",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this one; may be given several times.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="GROUP",
            help="Share the topic with this group's members and commit; --from is for partitions without an offset.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="Wait for more records at the end, until Ctrl-C.")
    ] = False,
    count: Annotated[int | None, typer.Option("-n", "--count", min=1, help="Stop after this many records.")] = None,
    format_string: Annotated[
        str | None,
        typer.Option(
            "-f",
            "--format",
            metavar="FORMAT",
            help="Tokens of kcat: %t topic, %p partition, %o offset, %k key, %s value, %K %S their lengths, "
            "%R the value's in four bytes, %h headers, %T time, %% percent; \\n \\t \\xNN.",
        ),
    ] = None,
    keys: Annotated[bool, typer.Option("--keys/--no-keys", help="Show keys in a table or plain lines.")] = True,
    headers: Annotated[bool, typer.Option("--headers", help="Show headers in a table or plain lines.")] = False,
    committed: Annotated[
        bool, typer.Option("--committed", help="Leave out records of open and aborted transactions.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Annotated[
        Output | None,
        typer.Option("--output", "-o", help="A table on a terminal, JSON lines otherwise.", show_default=False),
    ] = None,
) -> None:
    """Read records and stop at the end of the topic, or go on with --follow."""
    if format_string is not None and output is not None:
        raise UsageError("--format and --output exclude each other")
    if group is not None and partition:
        raise UsageError("--group and --partition exclude each other: the group shares the partitions out")
    position = parse_start(start, time.time_ns() // 1_000_000)
    write = _writer(format_string, output, keys=keys, headers=headers)
    isolation = Isolation.READ_COMMITTED if committed else Isolation.READ_UNCOMMITTED
    with connect(bootstrap) as cluster:
        if group is not None:
            from ottla.cli.group_consumption import GroupConsumption

            GroupConsumption(cluster, topic, group, position, isolation).copy(write, count, follow=follow)
            return
        partitions = _partitions(cluster, topic, partition)
        starts, remarks = resolve_start(cluster, position, partitions)
        for remark in remarks:
            say(remark)
        consumer = Consumer(cluster, ConsumerSettings(fetch=FetchSettings(isolation=isolation)))
        ends = None if follow else list_offsets(cluster, dict.fromkeys(partitions, LATEST), isolation)
        consumer.assign(starts)
        _copy(consumer, None if ends is None else {key: at.offset for key, at in ends.items()}, count, write)


def _partitions(cluster: Cluster, topic: str, wanted: list[int] | None) -> list[TopicPartition]:
    known = [entry.partition for entry in cluster.topic(topic).partitions]
    unknown = sorted(set(wanted or ()) - set(known))
    if unknown:
        raise CommandError(
            f"topic {topic!r} has no partition {unknown[0]}: it has partitions 0 to {len(known) - 1}", Exit.NOT_FOUND
        )
    return [TopicPartition(topic, number) for number in (sorted(set(wanted)) if wanted else known)]


def _copy(consumer: Consumer, ends: dict[TopicPartition, int] | None, count: int | None, write: Writer) -> None:
    """Records to the writer until `count` are written or, where there are ends, until each partition is there."""
    left = sys.maxsize if count is None else count
    while left > 0:
        if ends is not None:
            for partition in consumer.assigned:
                if consumer.position(partition) >= ends[partition]:
                    consumer.drop(partition)
            if not consumer.assigned:
                return
        records = consumer.poll(POLL_MS, records_max=min(left, 500))
        if ends is not None:
            records = [record for record in records if record.offset < ends[_partition_of(record)]]
        if records:
            left -= len(records)
            write(records)


def _partition_of(record: ConsumedRecord) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)


def _writer(format_string: str | None, output: Output | None, *, keys: bool, headers: bool) -> Writer:
    if format_string is not None:
        return _lines(compile_format(format_string))
    chosen = output or (Output.TABLE if sys.stdout.isatty() else Output.JSON)
    if chosen is Output.JSON:
        return _lines(as_json)
    if chosen is Output.PLAIN:
        return _lines(plain(keys=keys, headers=headers))
    from ottla.cli.record_table import RecordTable

    return RecordTable(keys=keys, headers=headers).write


def _lines(formatter: Callable[[ConsumedRecord], bytes]) -> Writer:
    stream = sys.stdout.buffer

    def write(records: list[ConsumedRecord]) -> None:
        stream.write(b"".join([formatter(record) for record in records]))
        stream.flush()

    return write
