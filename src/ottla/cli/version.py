"""`ottla version`."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from ottla import __version__
from ottla.cli.options import Output, OutputOption
from ottla.cli.output import write_pairs

app = typer.Typer(add_completion=False)

SHOWN_PACKAGES = ("uvloop", "msgspec", "cramjam", "crc32c", "numba")


@app.command(epilog="`ottla version`, or `ottla version --all` in a bug report.")
def show(
    everything: Annotated[bool, typer.Option("--all", help="Add Python, the platform and the packages.")] = False,
    output: OutputOption = None,
) -> None:
    """Print the version of Ottla."""
    pairs: dict[str, object] = {"ottla": __version__}
    if everything:
        pairs |= {"python": sys.version.split()[0], "platform": platform.platform()}
        pairs |= {name: _installed(name) for name in SHOWN_PACKAGES}
    if output is None and not everything:
        typer.echo(f"ottla {__version__}")
    else:
        write_pairs(pairs, output or Output.PLAIN)


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
