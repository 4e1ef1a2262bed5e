"""Scripts read exit codes, people read one line."""

from __future__ import annotations

import pytest

from ottla.cli.failures import CommandError, Exit, UsageError, exit_code_of, fail, reporting
from ottla.client.errors import CannotConnectError, ClientError, NotKafkaError, broker_error
from ottla.model.errors import ConfigError, ErrorCode


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandError("x"), Exit.FAILED),
        (UsageError("x"), Exit.USAGE),
        (ConfigError("x"), Exit.USAGE),
        (CannotConnectError("x"), Exit.CANNOT_CONNECT),
        (NotKafkaError("x"), Exit.CANNOT_CONNECT),
        (broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "x"), Exit.NOT_FOUND),
        (broker_error(ErrorCode.TOPIC_ALREADY_EXISTS, "x"), Exit.ALREADY_EXISTS),
        (broker_error(ErrorCode.INVALID_CONFIG, "x"), Exit.FAILED),
        (ClientError("x"), Exit.FAILED),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
        (OSError(28, "No space left on device"), Exit.FAILED),
        (RuntimeError("x"), Exit.FAILED),
    ],
)
def test_each_kind_of_failure_has_its_exit_code(error: BaseException, code: Exit) -> None:
    assert exit_code_of(error) is code


def test_the_exit_codes_never_change() -> None:
    assert {code.name: int(code) for code in Exit} == {
        "OK": 0,
        "FAILED": 1,
        "USAGE": 2,
        "CANNOT_CONNECT": 3,
        "NOT_FOUND": 4,
        "ALREADY_EXISTS": 5,
        "INTERRUPTED": 130,
    }


@pytest.mark.parametrize("error", [CommandError("two\nlines"), ValueError("odd\nthing"), KeyboardInterrupt()])
def test_a_failure_is_one_line_without_a_traceback(
    error: BaseException, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OTTLA_DEBUG", raising=False)
    with pytest.raises(SystemExit), reporting():
        raise error
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.count("\n") == 1
    assert "Traceback" not in written.err


def test_a_traceback_is_there_for_those_who_ask(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTTLA_DEBUG", "1")
    with pytest.raises(SystemExit):
        fail(ValueError("odd"))
    assert "ValueError: odd" in capsys.readouterr().err
