"""How a broker writes its log: one line per event on standard error, for people or for machines.

    2026-03-01T09:30:00.123456Z warning  ottla.server  connection closed  peer=10.0.0.7 reason='a TLS handshake arrived'
    {"timestamp":"2026-03-01T09:30:00.123456Z","level":"warning","logger":"ottla.server","event":"connection closed"}

What the standard library's `logging` is given (asyncio, warnings) comes out in the same form. Text that came over the
network may be in any value, so nothing reaches a terminal that could move its cursor or begin a line of its own; only a
traceback, which follows its event on the console, has lines of its own, and they are indented.

`configure` comes first in a process, before structlog is imported anywhere: structlog looks for rich in order to print
tracebacks that nobody here prints, and rich takes longer to load than the broker.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    from structlog.typing import Processor

Format: TypeAlias = Literal["console", "json"]
Event: TypeAlias = MutableMapping[str, Any]
Render: TypeAlias = Callable[[Event], str]
"""From `timestamp`, `level`, `logger`, `event`, `exception` and whatever else to the text of one event."""

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
DEFAULT_LOGGER: Final = "ottla"
_LOGGER_WIDTH: Final = 14
_DIM: Final = "\x1b[2m"
_RED: Final = "\x1b[31m"
_COLOURS: Final = {"debug": _DIM, "info": "\x1b[32m", "warning": "\x1b[33m", "error": _RED, "critical": _RED}
_PLAIN: Final = "\x1b[0m"


def configure(format: Format = "console", level: str = "info", *, node: str | None = None) -> None:
    """Set the log up for this process, which is a broker's own. Once, and first of all.

    `node` is said in every line, for brokers that write to one place.
    """
    with _without_rich():
        import structlog
    threshold = LEVELS[level]
    render = render_json if format == "json" else console_renderer(colours=_wants_colours())
    if node is not None:
        render = _naming(node, render)
    structlog.configure(
        processors=_processors(render),
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=_NamedOutput,
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=threshold, handlers=[_StandardHandler(render)], force=True)
    logging.captureWarnings(True)


def configure_for_embedding() -> None:
    """Hand events to the standard library's loggers `ottla.*`: what they print is up to the program around the broker.

    Does nothing where that program has configured structlog itself: then its configuration holds for the broker too.
    """
    import structlog

    if structlog.is_configured():
        return
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, structlog.processors.format_exc_info, _as_standard_arguments],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=_standard_logger,
        cache_logger_on_first_use=False,
    )


# Rendering


def _naming(node: str, render: Render) -> Render:
    def named(event: Event) -> str:
        event["node"] = node
        return render(event)

    return named


def render_json(event: Event) -> str:
    """One JSON object."""
    ordered = {key: event.pop(key) for key in ("timestamp", "level", "logger", "event") if key in event}
    ordered.update(event)
    try:
        text = msgspec.json.encode(ordered, enc_hook=str).decode()
    except (TypeError, ValueError):
        # Keys that JSON has not, or half a surrogate pair: rare, and never worth an event.
        text = msgspec.json.encode({str(key): ascii(value) for key, value in ordered.items()}).decode()
    # To some readers U+2028 is the end of a line, to some terminals U+009B an order, and JSON does not escape them.
    return text if text.isprintable() else "".join([c if c.isprintable() else json.dumps(c)[1:-1] for c in text])


def console_renderer(*, colours: bool) -> Render:
    """One line for people, with a traceback under it where there is one."""

    def render(event: Event) -> str:
        timestamp, level = event.pop("timestamp", ""), str(event.pop("level", ""))
        logger, text = str(event.pop("logger", "")), event.pop("event", "")
        exception = event.pop("exception", None)
        dim, plain = (_DIM, _PLAIN) if colours else ("", "")
        colour = _COLOURS.get(level, "") if colours else ""
        pairs = " ".join([f"{dim}{key}={plain}{_quoted(value)}" for key, value in event.items()])
        line = f"{dim}{timestamp}{plain} {colour}{level:<8}{plain} {logger:<{_LOGGER_WIDTH}} {_visible(str(text))}"
        if pairs:
            line = f"{line}  {pairs}"
        return line if exception is None else line + "\n" + _indented(str(exception))

    return render


def _quoted(value: object) -> str:
    """The value as it is if it can be told where it ends, else in quotes."""
    text = value if isinstance(value, str) else str(value)
    if text and text.isprintable() and not any(mark in text for mark in " ='\""):
        return text
    return repr(text)


def _visible(text: str) -> str:
    return text if text.isprintable() else repr(text)[1:-1]


def _indented(text: str) -> str:
    return "\n".join(f"    {_visible(line)}" for line in text.split("\n") if line)


def _wants_colours() -> bool:
    """On a terminal that has them, unless its user has said no (no-color.org)."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


# structlog


def _processors(render: Render) -> list[Processor]:
    import structlog

    def finish(logger: _NamedOutput, _method: str, event: Event) -> str:
        event["logger"] = logger.name
        return render(event)

    return [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        finish,
    ]


class _NamedOutput:
    """What structlog writes finished lines to, under the name that `structlog.get_logger` was given."""

    __slots__ = ("name",)

    def __init__(self, name: str = DEFAULT_LOGGER) -> None:
        self.name = name

    def msg(self, line: str) -> None:
        write_line(line)

    log = debug = info = warning = warn = error = critical = fatal = exception = failure = err = msg


def write_line(text: str) -> None:
    """To standard error as it is now, in one piece; a reader who went away is no reason to stop."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text + "\n")


def _standard_logger(name: str = DEFAULT_LOGGER) -> logging.Logger:
    return logging.getLogger(name)


def _as_standard_arguments(_logger: object, _method: str, event: Event) -> tuple[tuple[str], dict[str, Any]]:
    """An event as `logging` takes it: the console's text without time and level, which `logging` adds."""
    exception = event.pop("exception", None)
    text = _visible(str(event.pop("event", "")))
    pairs = " ".join(f"{key}={_quoted(value)}" for key, value in event.items())
    line = f"{text}  {pairs}" if pairs else text
    return (line if exception is None else f"{line}\n{exception}",), {}


# The standard library


class _StandardHandler(logging.Handler):
    """Renders what `logging` is given like everything else."""

    def __init__(self, render: Render) -> None:
        super().__init__()
        self._render = render

    def emit(self, record: logging.LogRecord) -> None:
        event: Event = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        try:
            event["event"] = record.getMessage().strip()
            if record.exc_info is not None and record.exc_info[1] is not None:
                event["exception"] = "".join(traceback.format_exception(record.exc_info[1])).rstrip()
            write_line(self._render(event))
        except Exception:
            self.handleError(record)


@contextlib.contextmanager
def _without_rich() -> Iterator[None]:
    """Make `import rich` fail for a while, as if it were not installed, unless it is loaded already."""
    if "rich" in sys.modules or "structlog" in sys.modules:
        yield
        return
    sys.modules["rich"] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules["rich"]
