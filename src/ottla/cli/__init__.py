"""The command `ottla`: one file per group of commands, each loaded when it is called for.

Exit codes: 0 it worked, 1 it failed, 2 the command line is wrong, 3 no broker could be reached, 4 what was named is not
there, 5 what was to be made is there already, 130 interrupted. An error is one line on standard error that says what to
do; `OTTLA_DEBUG=1` adds the traceback.

Imports client, model, broker and embed; `log dump` reads segment files with wire.
"""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point. `ottla serve` in its plain spelling goes past the command line library, which takes longer to
    load than the broker to start."""
    arguments = sys.argv[1:]
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
