"""`ottla group reset`: a plan first, and with --execute the offsets of the plan."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.durations import parse_duration_ms, parse_moment_ms
from ottla.cli.failures import CommandError, Exit, UsageError, say
from ottla.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Output,
    OutputOption,
    chosen_output,
    connect,
    read_input_file,
)
from ottla.cli.output import write_json, write_rows
from ottla.cli.partition_choice import PartitionChoice, chosen_partitions, parse_choice
from ottla.cli.reset_plan import (
    PlannedOffset,
    ShiftBy,
    Target,
    ToCurrent,
    ToListed,
    plan_reset,
    read_offsets_file,
    write_offsets_file,
)
from ottla.cli.start_position import OFFSET_MAX, Edge, FromOffset
from ottla.client.cluster import Cluster
from ottla.client.consumer import AtTime
from ottla.client.errors import NotFoundError
from ottla.client.groups import GroupAdmin
from ottla.client.offsets import EARLIEST, LATEST
from ottla.model.ids import TopicPartition

EPILOG = (
    "`ottla group reset billing --topic orders --to-earliest`  (shows what would change)  \n"
    "`ottla group reset billing --topic orders:0,3 --to-offset 4200 --execute`  \n"
    "`ottla group reset billing --all-topics --to-datetime 2026-01-31T12:00:00 --execute`  \n"
    "`ottla group reset billing --all-topics --to-current --export > offsets.csv`  \n"
    "`ottla group reset billing --from-file offsets.csv --execute`"
)


def reset(
    group_id: Annotated[str, typer.Argument(metavar="GROUP", help="The group's id.", show_default=False)],
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="Of this topic; may be given several times."),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Wherever the group has offsets.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_current: Annotated[bool, typer.Option("--to-current", help="Where it is: to export or to renew.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, max=OFFSET_MAX, help="To this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option("--to-datetime", metavar="ISO", help="To the first record at or after this time.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="15m", help="To what was written that long ago.")
    ] = None,
    shift_by: Annotated[
        int | None, typer.Option("--shift-by", metavar="N", help="Forward by N, or back with a negative N.")
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="CSV", help="To what the lines topic,partition,offset of a file say."),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it, instead of showing what would be done.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done, which is the default.")] = False,
    export: Annotated[bool, typer.Option("--export", help="Write the new offsets as lines for --from-file.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Move the offsets of a group that nobody is in. Shows the plan; --execute carries it out."""
    if execute and dry_run:
        raise UsageError("--execute and --dry-run exclude each other")
    targets: list[Target | None] = [
        Edge(EARLIEST) if to_earliest else None,
        Edge(LATEST) if to_latest else None,
        ToCurrent() if to_current else None,
        None if to_offset is None else FromOffset(to_offset),
        None if to_datetime is None else AtTime(parse_moment_ms(to_datetime, "--to-datetime")),
        None if by_duration is None else _ago(by_duration),
        None if shift_by is None else ShiftBy(shift_by),
        None if from_file is None else ToListed(_read(from_file, group_id)),
    ]
    target = _only([target for target in targets if target is not None])
    choices = [parse_choice(text) for text in topic or ()]
    _check_scope(target, choices, all_topics=all_topics)
    with connect(bootstrap) as cluster:
        plan = _plan(cluster, group_id, target, choices)
        members = _members(cluster, group_id)
        if execute:
            _carry_out(cluster, group_id, plan, members)
    _show(group_id, plan, output, export=export, executed=execute)
    if execute:
        say(f"reset {len(plan)} offset{'' if len(plan) == 1 else 's'} of group {group_id}")
        return
    if members is not None:
        say(f"group {group_id!r} is in use ({members}): stop its consumers before --execute")
    say("nothing was changed: add --execute to do it")


def _ago(text: str) -> AtTime:
    return AtTime(max(time.time_ns() // 1_000_000 - parse_duration_ms(text, "--by-duration"), 0))


def _read(path: Path, group_id: str) -> dict[TopicPartition, int]:
    try:
        return read_offsets_file(read_input_file(path, "--from-file").decode(), group_id)
    except UnicodeDecodeError:
        raise UsageError(f"--from-file {path}: it is not UTF-8") from None


def _only(targets: list[Target]) -> Target:
    if len(targets) != 1:
        raise UsageError(
            "say where to, once: --to-earliest, --to-latest, --to-current, --to-offset N, --to-datetime ISO, "
            "--by-duration 15m, --shift-by N or --from-file CSV"
        )
    return targets[0]


def _check_scope(target: Target, choices: list[PartitionChoice], *, all_topics: bool) -> None:
    if isinstance(target, ToListed):
        if choices or all_topics:
            raise UsageError("--from-file names the partitions: leave out --topic and --all-topics")
    elif bool(choices) == all_topics:
        raise UsageError("say of which topics: --topic TOPIC (or TOPIC:0,1), or --all-topics")


def _plan(cluster: Cluster, group_id: str, target: Target, choices: list[PartitionChoice]) -> list[PlannedOffset]:
    committed = GroupAdmin(cluster).fetch_offsets(group_id)
    if isinstance(target, ToListed):
        choices = [PartitionChoice(topic, (number,)) for topic, number in target.offsets]
    partitions = chosen_partitions(cluster, choices) if choices else sorted(committed)
    if not partitions:
        raise CommandError(f"group {group_id!r} has no offsets: say of which topic with --topic", Exit.NOT_FOUND)
    return plan_reset(cluster, target, partitions, committed)


def _members(cluster: Cluster, group_id: str) -> str | None:
    """Who is in the group, in words; None if nobody is, or if there is no such group yet."""
    try:
        group = GroupAdmin(cluster).describe_group(group_id)
    except NotFoundError:
        say(f"there is no group {group_id!r} yet: setting its offsets makes it")
        return None
    if group.empty:
        return None
    count = len(group.members)
    return f"{count} member{'' if count == 1 else 's'}, state {group.state}"


def _show(group_id: str, plan: list[PlannedOffset], output: Output | None, *, export: bool, executed: bool) -> None:
    for entry in plan:
        if entry.remark is not None:
            say(entry.remark)
    if export:
        sys.stdout.write(write_offsets_file(plan))
        return
    rows = [
        {
            "topic": entry.partition.topic,
            "partition": entry.partition.partition,
            "current": entry.current,
            "new": entry.new,
        }
        for entry in plan
    ]
    chosen = chosen_output(output)
    if chosen is Output.JSON:
        write_json({"group": group_id, "executed": executed, "offsets": rows})
    else:
        write_rows(rows, ("topic", "partition", "current", "new"), chosen)


def _carry_out(cluster: Cluster, group_id: str, plan: list[PlannedOffset], members: str | None) -> None:
    if members is not None:
        raise CommandError(
            f"group {group_id!r} is in use ({members}): offsets can only be reset while nobody is in the group; "
            f"stop its consumers and try again"
        )
    GroupAdmin(cluster).commit_offsets(group_id, {entry.partition: entry.new for entry in plan})
