"""`ottla doctor`: says why a client cannot connect, or a broker cannot start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.doctor_machine import check_machine
from ottla.cli.doctor_network import check_address, check_cluster
from ottla.cli.failures import Exit
from ottla.cli.finding import Finding, Health
from ottla.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, OutputOption
from ottla.cli.output import write_json
from ottla.client.cluster import Cluster
from ottla.client.settings import ClientSettings

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

TIMEOUT_MS = 3_000
COLOURS = {Health.OK: "green", Health.WARN: "yellow", Health.FAIL: "red"}


@app.command(epilog="`ottla doctor`  \n`ottla doctor --bootstrap kafka:9092`  \n`ottla doctor --data /var/lib/ottla`")
def doctor(
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Look at this data directory of a broker, too.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: OutputOption = None,
) -> None:
    """Check the way from here to the cluster, and this machine. One line for each check, with what to do.

    Exit code 1 if a check fails; warnings alone leave it at 0.
    """
    findings: list[Finding] = []
    for finding in _examine(bootstrap, data):
        findings.append(finding)
        if output is not Output.JSON:
            print_finding(finding)
    if output is Output.JSON:
        write_json([asdict(finding) for finding in findings])
    if any(finding.health is Health.FAIL for finding in findings):
        raise typer.Exit(Exit.FAILED)


def _examine(bootstrap: str, data: Path | None) -> Iterator[Finding]:
    settings = replace(
        ClientSettings.of(bootstrap),
        connect_timeout_ms=TIMEOUT_MS,
        request_timeout_ms=TIMEOUT_MS,
        api_timeout_ms=TIMEOUT_MS,
    )
    reached = False
    for address in settings.bootstrap:
        on_the_way = []
        for finding in check_address(address, settings):
            on_the_way.append(finding)
            yield finding
        reached = reached or all(finding.health is not Health.FAIL for finding in on_the_way)
    if reached:
        with Cluster(settings) as cluster:
            yield from check_cluster(cluster)
    yield from check_machine(data)


def print_finding(finding: Finding) -> None:
    """On one line, with colour where somebody sees it."""
    line = finding.line()
    if _in_colour():
        word = finding.health.value
        line = typer.style(word, fg=COLOURS[finding.health], bold=True) + line[len(word) :]
    typer.echo(line)


def _in_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
