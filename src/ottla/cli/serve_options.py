"""What `ottla serve` takes, read without the command line library.

The library behind the other commands takes longer to load, and more memory, than the whole broker. So the plain
spellings (`--option VALUE`, `--option=VALUE`) are read here. Whatever is not plain, help and mistakes among it, is left
to `serve.py`, which describes the same options to people; a test keeps the two in step.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.cli.failures import UsageError

if TYPE_CHECKING:
    from ottla.model.configs.quorum import Address

PORT_MAX: Final = 65_535
METRICS_HOST: Final = "127.0.0.1"
LOG_FORMATS: Final = ("console", "json")
LOG_LEVELS: Final = ("debug", "info", "warning", "error")

OPTIONS: Final = {
    "--data": "data",
    "--host": "host",
    "--port": "port",
    "--set": "settings",
    "--config": "config",
    "--brokers": "brokers",
    "--console-port": "console_port",
    "--metrics-port": "metrics_port",
    "--metrics-host": "metrics_host",
    "--log-format": "log_format",
    "--log-level": "log_level",
}
"""Each option and the field of `ServeOptions` that it fills."""
_NUMBERS: Final = frozenset({"port", "brokers", "console_port", "metrics_port"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The command line of `ottla serve`. None where nothing was said, so that a config file may say it."""

    data: str | None = None
    host: str | None = None
    port: int | None = None
    settings: tuple[str, ...] = ()
    config: str | None = None
    brokers: int | None = None
    console_port: int | None = None
    metrics_port: int | None = None
    metrics_host: str | None = None
    log_format: str | None = None
    log_level: str | None = None


def parse_plain(arguments: Sequence[str]) -> ServeOptions | None:
    """The options if all of them are spelt plainly, else None."""
    values: dict[str, object] = {}
    settings: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, separator, inline = argument.partition("=")
        field = OPTIONS.get(name)
        value = inline if separator else next(rest, None)
        if field is None or value is None or (field in _NUMBERS and not value.isdecimal()):
            return None
        if field == "settings":
            settings.append(value)
        elif field in _NUMBERS:
            values[field] = int(value)
        else:
            values[field] = value
    return ServeOptions(**values, settings=tuple(settings))  # type: ignore[arg-type]  # checked just above


def run(options: ServeOptions) -> int:
    """Check what can be checked before a broker is built, then be it, or watch over several; returns the exit code."""
    _check_numbers(options)
    if options.data == "":
        raise UsageError("--data: no directory is named; is the variable that holds it empty?")
    _check_choice("--log-format", options.log_format, LOG_FORMATS)
    _check_choice("--log-level", options.log_level, LOG_LEVELS)
    properties = _properties(options)
    if options.brokers is not None and options.brokers != 1:
        from ottla.cli.serve_cluster import run_cluster

        return run_cluster(options, properties, options.brokers)
    from ottla.logs import configure

    supervised = "OTTLA_SUPERVISED" in os.environ
    # Before anything else imports the logging library, which would load far more than a broker's log needs.
    configure(
        "json" if options.log_format == "json" else "console",
        options.log_level or "info",
        node=properties.get("node.id") if supervised else None,
    )
    from ottla.broker_process import BrokerOptions, run_broker

    return run_broker(
        BrokerOptions(
            properties=properties,
            data=options.data,
            host=options.host,
            port=options.port,
            metrics_at=_metrics_at(options),
            stops_with_input=supervised,
        )
    )


def _properties(options: ServeOptions) -> dict[str, str]:
    """The config file with --set over it."""
    properties: dict[str, str] = {}
    if options.config is not None:
        from ottla.model.configs.properties import parse_properties

        try:
            with open(options.config, encoding="utf-8") as file:
                properties = parse_properties(file.read(), options.config)
        except OSError as error:
            raise UsageError(f"--config: cannot read {options.config}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise UsageError(f"--config: {options.config} is not UTF-8 text: {error}") from error
    for pair in options.settings:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise UsageError(f"--set {pair!r}: write it as KEY=VALUE, for example --set log.retention.ms=3600000")
        properties[key.strip()] = value.strip()
    return properties


def _metrics_at(options: ServeOptions) -> Address | None:
    if options.metrics_port is None:
        return None
    from ottla.model.configs.quorum import Address

    return Address(options.metrics_host or METRICS_HOST, options.metrics_port)


def _check_choice(option: str, value: str | None, choices: tuple[str, ...]) -> None:
    if value is not None and value not in choices:
        raise UsageError(f"{option} {value!r}: choose one of {', '.join(choices)}")


def _check_numbers(options: ServeOptions) -> None:
    if options.brokers is not None and options.brokers < 1:
        raise UsageError("--brokers: at least one")
    for option, port in (("--port", options.port), ("--metrics-port", options.metrics_port)):
        if port is not None and port > PORT_MAX:
            raise UsageError(f"{option} {port}: ports end at {PORT_MAX}")
    if options.metrics_host is not None and options.metrics_port is None:
        raise UsageError("--metrics-host: say with --metrics-port on which port, too")
    if options.console_port is not None:
        raise UsageError("--console-port: this version has no web console yet; leave the option out")
