"""The tree of commands. A command's module is imported when the command is named, or when all are listed for help."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from ottla.cli.failures import Exit, fail, leave_pipe, reporting, say

COMMANDS: Final = {
    "serve": "serve",
    "topic": "topic",
    "produce": "produce",
    "consume": "consume",
    "group": "group",
    "txn": "txn",
    "cluster": "cluster",
    "config": "config",
    "log": "log",
    "doctor": "doctor",
    "version": "version",
}
"""Each command and the module of this package that holds it, in the order of the help page."""


class LazyCommands(typer.core.TyperGroup):
    """A group that loads its commands when they are needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"ottla.cli.{COMMANDS[cmd_name]}")
        command = typer.main.get_command(module.app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=LazyCommands,
    name="ottla",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from ottla import __version__

        typer.echo(f"ottla {__version__}")
        raise typer.Exit


@app.callback(
    epilog="Start with `ottla serve`, then `ottla topic create orders`, `ottla produce orders`, `ottla consume orders`."
)
def ottla(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Event streaming that speaks Kafka's protocol: a broker, and the tools to work with any Kafka cluster."""


def run_command(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code. Errors are reported here, in one line each."""
    with reporting():
        try:
            outcome = typer.main.get_command(app).main(list(arguments), prog_name="ottla", standalone_mode=False)
            sys.stdout.flush()
        except typer.Abort:
            return _interrupted()
        except SystemExit as leaving:
            if isinstance(leaving.__context__, BrokenPipeError):
                leave_pipe()
            raise
        except Exception as error:
            return _complain(error)
        return outcome if isinstance(outcome, int) else Exit.OK


def _interrupted() -> int:
    say("interrupted")
    return Exit.INTERRUPTED


def _complain(error: Exception) -> int:
    """A wrong command line: typer's exceptions, whatever library it builds them on, can say what is wrong."""
    describe = getattr(error, "format_message", None)
    if describe is None:
        fail(error)
    message = str(describe())
    if type(error).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(message + "\n")
    else:
        context = getattr(error, "ctx", None)
        path = getattr(context, "command_path", "ottla")
        say(f"{message} (see `{path} --help`)")
    return int(getattr(error, "exit_code", Exit.FAILED))
