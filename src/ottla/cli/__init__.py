"""The command `ottla`: one file per group of commands, each loaded when it is called for.

Exit codes: 0 it worked, 1 it failed, 2 the command line is wrong, 3 no broker could be reached, 4 what was named is not
there, 5 what was to be made is there already, 130 interrupted. An error is one line on standard error that says what to
do; `OTTLA_DEBUG=1` adds the traceback.

Imports client, model, broker and embed; `log dump` reads segment files with wire.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def main() -> None:
    """The entry point."""
    try:
        _open_closed_streams()
        _run(sys.argv[1:])
    except KeyboardInterrupt:  # while a command was being loaded; one that runs sees to it itself
        sys.stderr.write("ottla: interrupted\n")
        sys.exit(INTERRUPTED)


def _open_closed_streams() -> None:
    """A stream that the shell closed (`>&-`) is one that nobody reads, and its number is not for sockets to take."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  # as long as the process


def _run(arguments: list[str]) -> None:
    """`ottla serve` in its plain spelling goes past the command line library, which takes longer to load than the
    broker to start."""
    if arguments[:1] == ["serve"]:
        from ottla.cli.serve_options import parse_plain

        options = parse_plain(arguments[1:])
        if options is not None:
            from ottla.cli.failures import reporting

            with reporting():
                from ottla.cli.serve_options import run

                sys.exit(run(options))
    from ottla.cli.app import run_command

    sys.exit(run_command(arguments))
