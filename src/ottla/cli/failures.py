"""From an exception to one line on standard error and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

from ottla.model.errors import ConfigError, OttlaError


class Exit(IntEnum):
    """The exit codes of every command. Scripts rely on them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    CANNOT_CONNECT = 3
    NOT_FOUND = 4
    ALREADY_EXISTS = 5
    INTERRUPTED = 130


class CommandError(OttlaError):
    """A command that cannot go on; the message is what the user reads."""

    def __init__(self, message: str, exit_code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CommandError):
    """Arguments that make no sense together, or do not parse."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.USAGE)


def exit_code_of(error: BaseException) -> Exit:
    """The exit code that goes with an error."""
    if isinstance(error, CommandError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if isinstance(error, ConfigError):
        return Exit.USAGE
    return _client_exit_code(error) if isinstance(error, OttlaError) else Exit.FAILED


def _client_exit_code(error: OttlaError) -> Exit:
    from ottla.client.errors import AlreadyExistsError, CannotConnectError, NotFoundError

    if isinstance(error, CannotConnectError):
        return Exit.CANNOT_CONNECT
    if isinstance(error, NotFoundError):
        return Exit.NOT_FOUND
    return Exit.ALREADY_EXISTS if isinstance(error, AlreadyExistsError) else Exit.FAILED


def say(message: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"ottla: {' '.join(message.split())}\n")
    sys.stderr.flush()


def fail(error: BaseException) -> NoReturn:
    """Report the error and leave."""
    if debugging():
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        say("interrupted")
    elif isinstance(error, OttlaError):
        say(str(error))
    elif isinstance(error, OSError):
        say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    else:
        say(f"internal error: {type(error).__name__}: {error} (OTTLA_DEBUG=1 shows where; please report it)")
    sys.exit(exit_code_of(error))


def debugging() -> bool:
    """Whether the user asked for tracebacks."""
    return os.environ.get("OTTLA_DEBUG", "") not in ("", "0")


@contextmanager
def reporting() -> Iterator[None]:
    """Whatever goes wrong inside ends in one line and an exit code."""
    try:
        yield
    except BrokenPipeError:
        leave_pipe()
    except (Exception, KeyboardInterrupt) as error:
        fail(error)


def leave_pipe() -> NoReturn:
    """Whoever read our output has had enough, which is no failure. Nothing more may be written, not even at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    sys.exit(Exit.OK)
