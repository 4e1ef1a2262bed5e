"""`ottla cluster features`: which levels the cluster uses, and which it shall use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ottla.cli.failures import UsageError, say
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, OutputOption, chosen_output, connect, parse_pairs
from ottla.cli.output import write_rows
from ottla.client.features import Feature, Features, LevelChange

EPILOG = (
    "`ottla cluster features`  \n"
    "`ottla cluster features --newest --dry-run`  (after every broker was upgraded)  \n"
    "`ottla cluster features group.version=1`  \n"
    "`ottla cluster features group.version=0 --downgrade`  (no consumer groups of KIP-848)"
)
COLUMNS = ("feature", "level", "min_level", "max_level")
_LEVEL_MAX = 2**15 - 1


def features(
    levels: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FEATURE=LEVEL]...", help="The levels that they shall have.", show_default=False),
    ] = None,
    newest: Annotated[
        bool, typer.Option("--newest", help="Raise every feature to the highest level that is supported.")
    ] = False,
    downgrade: Annotated[bool, typer.Option("--downgrade", help="The levels are lower than those of now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask the controller whether it would do it.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Show the feature levels that the cluster uses and those that it supports, or change them: all of them or none."""
    wanted = _parsed(levels or ())
    if newest and (wanted or downgrade):
        raise UsageError("--newest: raises all features; leave out FEATURE=LEVEL and --downgrade")
    if not newest and not wanted and (downgrade or dry_run):
        raise UsageError("say which features shall have which levels: FEATURE=LEVEL, or --newest")
    with connect(bootstrap) as cluster:
        calls = Features(cluster)
        found = calls.describe()
        if newest:
            wanted = {feature.name: feature.max_level for feature in found if feature.level < feature.max_level}
        if wanted:
            change = LevelChange.SAFE_DOWNGRADE if downgrade else LevelChange.UPGRADE
            calls.update(wanted, change, validate_only=dry_run)
            found = found if dry_run else calls.describe()
    write_rows([_row(feature) for feature in found], COLUMNS, chosen_output(output))
    _conclude(wanted, newest=newest, dry_run=dry_run)


def _conclude(wanted: dict[str, int], *, newest: bool, dry_run: bool) -> None:
    told = ", ".join(f"{name}={level}" for name, level in wanted.items())
    if wanted and dry_run:
        say(f"nothing was changed: without --dry-run the levels would be {told}")
    elif wanted:
        say(f"the cluster uses {told}")
    elif newest:
        say("every feature has the highest level already")


def _parsed(levels: Sequence[str]) -> dict[str, int]:
    parsed = {}
    for name, level in parse_pairs(levels, "FEATURE=LEVEL").items():
        if not level.isdecimal() or int(level) > _LEVEL_MAX:
            raise UsageError(f"{name}={level}: a level is a number from 0 on; see `ottla cluster features`")
        parsed[name] = int(level)
    return parsed


def _row(feature: Feature) -> dict[str, object]:
    return {
        "feature": feature.name,
        "level": feature.level,
        "min_level": feature.min_level,
        "max_level": feature.max_level,
    }
