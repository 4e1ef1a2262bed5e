"""`ottla serve`, as help and shell completion describe it; `serve_options.py` is what runs."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ottla.cli.serve_options import ServeOptions, run

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


class LogFormat(StrEnum):
    """How the broker writes its log."""

    CONSOLE = "console"
    JSON = "json"


class LogLevel(StrEnum):
    """How much the broker writes to its log."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@app.command(
    epilog="`ottla serve`  \n"
    "`ottla serve --data /var/lib/ottla --port 9092 --set log.retention.ms=86400000`  \n"
    "`ottla serve --brokers 3 --data /var/lib/ottla`  \n"
    "`ottla serve --config server.properties`"
)
def serve(
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where the logs are kept; ottla-data, right here, unless told.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address to listen on; 127.0.0.1 unless told.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port to listen on; 9092 unless told, 0 for a free one.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker config by Kafka's name; may be given several times."),
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="A server.properties file.")] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1, help="How many brokers; each has a directory of its own in --data, and the ports count up."
        ),
    ] = None,
    console_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="The port of the web console; not in this version.")
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve Prometheus metrics on this port.")
    ] = None,
    metrics_host: Annotated[
        str | None, typer.Option(help="The address to serve metrics on; 127.0.0.1 unless told.")
    ] = None,
    log_format: Annotated[LogFormat | None, typer.Option(help="How to write the log; console unless told.")] = None,
    log_level: Annotated[LogLevel | None, typer.Option(help="How much to log; info unless told.")] = None,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    An empty data directory is formatted first. One line with `ready` and the address goes to standard output when
    clients may connect; the log goes to standard error.
    """
    options = ServeOptions(
        data=data,
        host=host,
        port=port,
        settings=tuple(settings or ()),
        config=config,
        brokers=brokers,
        console_port=console_port,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        log_format=log_format and log_format.value,
        log_level=log_level and log_level.value,
    )
    raise typer.Exit(run(options))
